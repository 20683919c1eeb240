"""Speed and memory, as ratios measured in one run."""

# First of all: it switches off onnxruntime's telemetry, which benchmarks import by themselves, too.
import roundoff  # noqa: F401
