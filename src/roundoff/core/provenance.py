"""What a run read and where it ran, for its document."""

import hashlib
import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff import __version__
from roundoff.core.files import is_caffe, model_files, reading
from roundoff.messages.message import english, message

if TYPE_CHECKING:
    from roundoff.core.document import Environment, InputFile
    from roundoff.core.tensors import Array

# More than this is told apart by names and sizes: hashing it would take longer than the comparison.
_HASHED_BYTES = 256 << 20
_PACKAGES = ("numpy", "onnx", "onnxruntime")


def input_file(role: str, path: Path) -> "InputFile":
    """Identify a file, a folder or the two files of a Caffe net by a hash.

    It is one of the content while that is quick, else of the names and sizes.
    """
    from roundoff.core.document import InputFile

    with reading(path, what=english("The input")):
        listing = sorted(_listing(path))
        size = sum(file_size for _, file_size in listing)
        content = _content_hash(path, [name for name, _ in listing]) if size <= _HASHED_BYTES else None
    if content is not None:
        return InputFile(role, str(path), size, content, "content")
    return InputFile(role, str(path), size, _text_hash(f"{size} {name}" for name, size in listing), "listing")


def bytes_input(role: str, name: str, content: bytes) -> "InputFile":
    """Identify what was given in memory by a hash of its bytes.

    Args:
        role: What it was used as.
        name: What stands in place of a path.
        content: Its bytes.
    """
    from roundoff.core.document import InputFile

    return InputFile(role, name, len(content), hashlib.sha256(content).hexdigest(), "content")


def array_input(role: str, feeds: "Iterable[Mapping[str, Array]]", *, name: str = "(array)") -> "InputFile":
    """Identify arrays by a hash of their names, types, shapes and values.

    Beyond what is hashed of files only names, types and shapes count, too.

    Args:
        role: What they were used as.
        feeds: The arrays, by the inputs they are for; one mapping for each sample.
        name: What stands in place of a path.
    """
    from roundoff.core.document import InputFile

    content, listing, size = hashlib.sha256(), hashlib.sha256(), 0
    for feed in feeds:
        for key, array in feed.items():
            head = f"{key} {array.dtype.str} {array.shape}\n".encode("utf-8", "surrogatepass")
            listing.update(head)
            size += array.nbytes
            if size <= _HASHED_BYTES:
                content.update(head)
                content.update(array.tobytes())
    if size <= _HASHED_BYTES:
        return InputFile(role, name, size, content.hexdigest(), "content")
    return InputFile(role, name, size, listing.hexdigest(), "listing")


def data_paths(given: Sequence[str] | None) -> Iterator[Path]:
    """The files and folders that --data names, with or without an input before them."""
    for text in given or ():
        path = Path(text)
        yield path if path.exists() else Path(text.partition("=")[2])


def environment(elapsed_s: float) -> "Environment":
    """Versions, host and time of this run."""
    from roundoff.core.document import Environment

    return Environment(
        roundoff=__version__,
        python=platform.python_version(),
        packages={name: metadata.version(name) for name in _PACKAGES},
        host=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        arithmetic=message("about.arithmetic_used"),
        elapsed_s=round(elapsed_s, 3),
        finished=datetime.now().astimezone().isoformat(timespec="seconds"),
    )


def _listing(path: Path) -> list[tuple[str, int]]:
    if not path.is_dir():
        return [(file.name, file.stat().st_size) for file in model_files(path)]
    files = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    return [(str(file.relative_to(path)), file.stat().st_size) for file in files if file.is_file()]


def _content_hash(path: Path, names: Sequence[str]) -> str | None:
    """The hash of a file, or of the names and hashes of a folder's files; None when one cannot be read."""
    try:
        if is_caffe(path):
            return _text_hash(f"{_file_hash(file)} {file.suffix}" for file in model_files(path))
        if path.is_file():
            return _file_hash(path)
        return _text_hash(f"{_file_hash(path / name)} {name}" for name in names)
    except OSError:
        # Such a file is a row of the result; it must not cost the whole result.
        return None


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _text_hash(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()
