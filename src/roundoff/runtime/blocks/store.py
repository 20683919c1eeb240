"""Tensors kept for later: in memory as far as that is allowed, the rest in files of a temporary folder."""

import tempfile
from pathlib import Path
from threading import Lock
from types import TracebackType

import numpy as np

from roundoff.core.mapped import map_array
from roundoff.core.sizes import format_size
from roundoff.core.tensors import Array
from roundoff.errors import BadInput

__all__ = ["TensorStore"]

# Smaller ones are not worth a file.
_SMALL_BYTES = 4096


class TensorStore:
    """Keeps tensors under a number (of a chunk of samples) and a name. Safe to use from threads.

    Args:
        limit: Bytes to keep in memory.
        folder: Where the temporary folder is made; the system's place for such by default.

    Attributes:
        memory_bytes: Bytes in memory.
        disk_bytes: Bytes in files.
    """

    memory_bytes: int
    disk_bytes: int

    def __init__(self, limit: int, folder: Path | None = None) -> None:
        self._limit = limit
        self._parent = folder
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._held: dict[tuple[int, str], Array] = {}
        self._lock = Lock()
        self._files = 0
        self.memory_bytes = self.disk_bytes = 0

    def put(self, number: int, name: str, values: Array, *, needed: bool = True) -> None:
        """Keep a tensor, unless it is kept already; what is not needed, only while half of the memory is free.

        Raises:
            BadInput: It has to go to a file, and cannot be written.
        """
        key = number, name
        with self._lock:
            if key in self._held:
                return
            limit = self._limit if needed else self._limit // 2
            in_memory = values.nbytes <= _SMALL_BYTES or self.memory_bytes + values.nbytes <= limit
            if in_memory:
                self.memory_bytes += values.nbytes
            elif not needed:
                return
            else:
                path = self._next_path()
                self.disk_bytes += values.nbytes
        # A view would keep alive what it is a part of, such as all that a session took for a run.
        kept = np.array(values) if in_memory else self._write(path, values)
        with self._lock:
            self._held[key] = kept

    def get(self, number: int, name: str) -> Array:
        """A tensor that was kept; what is in a file is mapped.

        Raises:
            KeyError: It was not kept.
        """
        return self._held[number, name]

    def __contains__(self, key: tuple[int, str]) -> bool:
        return key in self._held

    def close(self) -> None:
        """Forget everything and delete the files."""
        self._held.clear()
        self.memory_bytes = self.disk_bytes = 0
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __enter__(self) -> "TensorStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _next_path(self) -> Path:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(
                prefix="roundoff-", dir=self._parent, ignore_cleanup_errors=True
            )
        self._files += 1
        return Path(self._folder.name) / f"{self._files}.bin"

    def _write(self, path: Path, values: Array) -> Array:
        try:
            np.asarray(values, order="C").tofile(path)
            return map_array(path, offset=0, dtype=values.dtype, shape=values.shape)
        except OSError as error:
            size, place, reason = format_size(self.disk_bytes), path.parent.parent, error.strerror or error
            raise BadInput(
                f"{size} of tensors that do not fit in memory cannot be written to {place}: {reason}.",
                fix="give more memory with --max-memory, fewer samples with --samples, "
                f"or set TMPDIR to a disk with more room than {size}",
            ) from error
