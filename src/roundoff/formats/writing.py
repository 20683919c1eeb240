"""Writing tensors as they come, one at a time, with a `tensors.json` at the end that tells which file is which."""

import contextlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self

from roundoff.core.dtypes import why_refused
from roundoff.core.files import write_text, writing
from roundoff.core.names import FileNames
from roundoff.core.tensors import Array, TensorInfo
from roundoff.errors import BadInput
from roundoff.formats.manifest import MANIFEST_NAMES, MAP_NAME
from roundoff.formats.stores import AscendStore, FileStore, NpzStore, Store, write_npy, write_raw

__all__ = ["TensorWriter", "WriteFormat", "open_writer"]

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
            raise BadInput(f"Two samples have the same name: {', '.join(samples)}.", fix="rename one of them")
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
            what = f"Tensor {info.name!r} {reason}; it cannot be written."
            raise BadInput(what, fix="leave it out: choose others with --tensors")
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
