"""What a run read and where it ran, for its document."""

import hashlib
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff import __version__
from roundoff.core.files import reading

if TYPE_CHECKING:
    from roundoff.core.document import Environment, InputFile

__all__ = ["environment", "input_file"]

# Larger files are told apart by name and size: hashing them would take longer than the comparison.
_HASHED_BYTES = 256 << 20
_PACKAGES = ("numpy", "onnx", "onnxruntime")
_ARITHMETIC = "sums in float64; models run by onnxruntime on the CPU with graph optimization off"


def input_file(role: str, path: Path) -> "InputFile":
    """Identify a file or folder by a hash."""
    from roundoff.core.document import InputFile

    with reading(path, what="The input"):
        if path.is_file() and path.stat().st_size <= _HASHED_BYTES:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            return InputFile(role, str(path), path.stat().st_size, digest, "content")
        listing = sorted(_listing(path))
    text = "\n".join(f"{size} {name}" for name, size in listing)
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
    return InputFile(role, str(path), sum(size for _, size in listing), digest, "listing")


def environment(elapsed_s: float) -> "Environment":
    """Versions, host and time of this run."""
    from roundoff.core.document import Environment

    return Environment(
        roundoff=__version__,
        python=platform.python_version(),
        packages={name: metadata.version(name) for name in _PACKAGES},
        host=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        arithmetic=_ARITHMETIC,
        elapsed_s=round(elapsed_s, 3),
    )


def _listing(path: Path) -> list[tuple[str, int]]:
    if path.is_file():
        return [(path.name, path.stat().st_size)]
    files = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    return [(str(file.relative_to(path)), file.stat().st_size) for file in files if file.is_file()]
