"""Writing tensors as they come, one at a time, with a `tensors.json` at the end that tells which file is which."""

import contextlib
import itertools
import json
import re
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, Protocol, Self

import numpy as np

from roundoff.core.files import write_text, writing
from roundoff.core.names import FileNames
from roundoff.core.tensors import Array, DType, TensorInfo, is_extended, why_refused
from roundoff.errors import BadInput
from roundoff.messages.message import english
from roundoff.tensors.ascend_npy import MAPPING_NAME, MAX_NAME_BYTES, NOT_IN_OP_NAME
from roundoff.tensors.manifest import MANIFEST_NAMES, MAP_NAME

# How the writer lays tensors down on disk: as .npy files, .npz archives, raw files, or under Ascend's names.
#
# Values go out in pieces of a few megabytes straight from the array, whatever its size and memory layout.

_PIECE_VALUES = 1 << 20

# In an archive a name may keep its slashes and letters, but nothing that breaks the format or leaves a folder.
_NOT_IN_ARCHIVE = re.compile(r"[\x00-\x1f\x7f-\x9f\\\ud800-\udfff]|(?<![^/])\.\.(?![^/])")
_MAX_MEMBER_BYTES = 250
_LONELY_ARCHIVE = "tensors"
# The oldest time a zip archive can hold: the same tensors give the same bytes.
_NO_TIME = (1980, 1, 1, 0, 0, 0)


class Store(Protocol):
    """One way to keep tensors; errors of the operating system are left to the writer."""

    def begin(self, folder: str) -> None:
        """Begin a sample in a sub-folder; empty for the directory itself."""
        ...

    def put(self, info: TensorInfo, array: Array, output_index: int) -> str:
        """Store a tensor and tell where, relative to the directory."""
        ...

    def finish(self) -> None:
        """Complete what is open."""
        ...


class FileStore:
    """A file per tensor, in the directory or in a sub-folder per sample.

    Args:
        directory: Where the files go.
        suffix: What their names end in.
        write: Writes the values of a tensor, `write_npy` or `write_raw`.
    """

    def __init__(self, directory: Path, *, suffix: str, write: Callable[[IO[bytes], Array], None]) -> None:
        self._directory = directory
        self._suffix = suffix
        self._write = write
        self._folder = ""
        self._names = FileNames()

    def begin(self, folder: str) -> None:
        """Make the sample's folder."""
        self._folder = f"{folder}/" if folder else ""
        (self._directory / folder).mkdir(exist_ok=True)

    def put(self, info: TensorInfo, array: Array, output_index: int) -> str:
        """Write the file."""
        return self.put_as(f"{self._names.stem(info.name)}{self._suffix}", array)

    def put_as(self, name: str, array: Array) -> str:
        """Write the file under a name chosen by the caller."""
        with (self._directory / self._folder / name).open("wb") as stream:
            self._write(stream, array)
        return f"{self._folder}{name}"

    def note(self, name: str, text: str) -> None:
        """Write a text file beside the tensors of the sample."""
        write_text(self._directory / self._folder / name, text)

    def finish(self) -> None:
        """Do nothing: every file is complete."""


class AscendStore:
    """.npy files named ``{op_name}.{output_index}.{timestamp}.npy``; over-long names go into a mapping."""

    def __init__(self, directory: Path, timestamp_us: int) -> None:
        self._files = FileStore(directory, suffix=".npy", write=write_npy)
        self._timestamp = timestamp_us
        self._ops: dict[tuple[str, str | None], str] = {}
        self._taken: set[str] = set()
        self._written: set[tuple[str, int]] = set()
        self._mapping: list[str] = []

    def begin(self, folder: str) -> None:
        """Make the sample's folder, which has a mapping of its own."""
        self.finish()
        self._written.clear()
        self._files.begin(folder)

    def put(self, info: TensorInfo, array: Array, output_index: int) -> str:
        """Write the file under the vendor's name, or a number that stands for it."""
        op = self._op(info.node, None if info.node else info.name)
        if (op, output_index) in self._written:  # then the index does not tell the node's outputs apart
            op = self._op(info.node, info.name)
        self._written.add((op, output_index))
        name = f"{op}.{output_index}.{self._timestamp}.npy"
        if len(name) <= MAX_NAME_BYTES:
            return self._files.put_as(name, array)
        number = f"{self._timestamp}{len(self._mapping)}.npy"
        self._mapping.append(f"{number},{name}\n")
        return self._files.put_as(number, array)

    def finish(self) -> None:
        """Write the mapping of the sample, if it needs one."""
        if self._mapping:
            self._files.note(MAPPING_NAME, "".join(self._mapping))
            self._mapping.clear()

    def _op(self, node: str, tensor: str | None) -> str:
        """Name the op of a node, or of one tensor of it; the same one in every sample."""
        if (node, tensor) not in self._ops:
            plain = NOT_IN_OP_NAME.sub("_", node or tensor or "_")
            spellings = itertools.chain([plain], (f"{plain}_{number}" for number in itertools.count(2)))
            op = next(spelling for spelling in spellings if spelling.casefold() not in self._taken)
            self._taken.add(op.casefold())
            self._ops[node, tensor] = op
        return self._ops[node, tensor]


class NpzStore:
    """One uncompressed archive per sample, filled member by member; a member keeps its tensor's name if it can."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._names = FileNames(illegal=_NOT_IN_ARCHIVE, limit=_MAX_MEMBER_BYTES)
        self._archive: zipfile.ZipFile | None = None
        self._file = ""

    def begin(self, folder: str) -> None:
        """Start the sample's archive."""
        self.finish()
        self._file = f"{folder or _LONELY_ARCHIVE}.npz"
        self._archive = zipfile.ZipFile(self._directory / self._file, "w", zipfile.ZIP_STORED)

    def put(self, info: TensorInfo, array: Array, output_index: int) -> str:
        """Add a member."""
        assert self._archive is not None  # noqa: S101 - the writer begins a sample first
        member = zipfile.ZipInfo(f"{self._names.stem(info.name)}.npy", _NO_TIME)
        # The length is not known to the archive beforehand, so leave room for more than 4 GiB.
        with self._archive.open(member, "w", force_zip64=True) as stream:
            write_npy(stream, array)
        return f"{self._file}/{member.filename}"

    def finish(self) -> None:
        """Write the archive's directory."""
        if self._archive is not None:
            archive, self._archive = self._archive, None
            archive.close()


def write_npy(stream: IO[bytes], array: Array) -> None:
    """Write a .npy file; bfloat16 and its kin become float32, which holds them exactly."""
    dtype = np.dtype(np.float32) if is_extended(array.dtype) else array.dtype.newbyteorder("<")
    header = {"descr": dtype.str, "fortran_order": False, "shape": array.shape}
    np.lib.format.write_array_header_1_0(stream, header)
    _write_values(stream, array, dtype)


def write_raw(stream: IO[bytes], array: Array) -> None:
    """Write little-endian values of exactly the type they have."""
    bits = array.view(f"u{array.dtype.itemsize}") if is_extended(array.dtype) else array
    _write_values(stream, bits, bits.dtype.newbyteorder("<"))


def _write_values(stream: IO[bytes], array: Array, dtype: DType) -> None:
    # tofile would be shorter, but hides which error stopped it: a full disk could not be told from a broken one.
    pieces = np.nditer(
        array,
        flags=["external_loop", "buffered", "zerosize_ok"],
        op_dtypes=[dtype],
        casting="safe",
        order="C",
        buffersize=_PIECE_VALUES,
    )
    for piece in pieces:
        stream.write(np.asarray(piece).tobytes())


WriteFormat = Literal["npy", "npz", "bin", "ascend-npy"]


class TensorWriter(Protocol):
    """Takes the tensors of one sample after the other.

    Used as a context manager it is closed at the end, or, after an error, left without `tensors.json`, so that
    what was written so far is not taken for a whole dump.
    """

    def begin_sample(self, sample: str) -> None:
        """The tensors that follow belong to this sample."""
        ...

    def write(self, info: TensorInfo, array: Array, /, *, output_index: int = 0) -> None:
        """Write one tensor.

        Args:
            info: Its name, and node and operation when known.
            array: Its values.
            output_index: Which output of its node it is.
        """
        ...

    def close(self) -> None:
        """Finish the files and write `tensors.json`."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def open_writer(
    directory: Path,
    format: WriteFormat,  # noqa: A002 - what users call it
    *,
    samples: Sequence[str],
    timestamp_us: int | None = None,
) -> TensorWriter:
    """Start writing a dump.

    Args:
        directory: Where the files go; one sample lies flat in it, several in a sub-folder or archive each.
        format: How tensors are stored.
        samples: All samples that will come, in order.
        timestamp_us: The time that ``ascend-npy`` puts into file names, in microseconds; now by default.
    """
    moment = time.time_ns() // 1000 if timestamp_us is None else timestamp_us
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
    store: Store
    match format:
        case "npy":
            store = FileStore(directory, suffix=".npy", write=write_npy)
        case "npz":
            store = NpzStore(directory)
        case "bin":
            store = FileStore(directory, suffix=".bin", write=write_raw)
        case "ascend-npy":
            store = AscendStore(directory, moment)
    return _MappedWriter(directory, store, tuple(samples) or ("",))


class _MappedWriter:
    """Keeps the order and the map; the store decides on files."""

    def __init__(self, directory: Path, store: Store, samples: tuple[str, ...]) -> None:
        if len(set(samples)) < len(samples):
            raise BadInput(
                english("Two samples have the same name: {samples}.", samples=", ".join(samples)),
                fix=english("rename one of them"),
            )
        self._directory = directory
        self._store = store
        self._samples = samples
        self._folders = FileNames(reserved=MANIFEST_NAMES)
        self._begun: list[str] = []
        self._names: set[str] = set()
        # One line of JSON per tensor: smaller than the objects, and ready to be written.
        self._lines: list[str] = []

    def begin_sample(self, sample: str) -> None:
        if sample not in self._samples or sample in self._begun:
            raise ValueError(f"sample {sample!r} was not announced, or was begun before")
        self._begun.append(sample)
        self._names.clear()
        with writing(self._directory):
            self._store.begin(self._folders.stem(sample) if len(self._samples) > 1 else "")

    def write(self, info: TensorInfo, array: Array, /, *, output_index: int = 0) -> None:
        if not self._begun or info.name in self._names:
            raise ValueError(f"tensor {info.name!r} comes before any sample, or twice in one")
        if reason := why_refused(array.dtype):
            what = english("Tensor {name!r} {reason}; it cannot be written.", name=info.name, reason=reason)
            raise BadInput(what, fix=english("leave it out: choose others with --tensors"))
        self._names.add(info.name)
        with writing(self._directory):
            file = self._store.put(info, array, output_index)
        entry = {"name": info.name, "file": file, "dtype": array.dtype.name, "shape": array.shape}
        optional = {"sample": self._begun[-1], "node": info.node, "op_type": info.op_type}
        self._lines.append(json.dumps(entry | {key: value for key, value in optional.items() if value}))

    def close(self) -> None:
        with writing(self._directory):
            self._store.finish()
        head = {"format": "roundoff-tensors", "version": 1, "ordered": True, "samples": self._begun or [""]}
        text = json.dumps(head)[:-1] + ', "tensors": [\n' + ",\n".join(self._lines) + "\n]}\n"
        write_text(self._directory / MAP_NAME, text)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        with contextlib.suppress(OSError, ValueError, BadInput):  # the first error is the one to tell
            self._store.finish()
