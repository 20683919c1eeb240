"""How files that ship with the package are made."""

# First of all: it switches off onnxruntime's telemetry, which scripts import by themselves, too.
import roundoff  # noqa: F401
