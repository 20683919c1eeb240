"""How many threads numpy's matrix products use.

They wait for one another by spinning. Where other work shares the cores (onnxruntime, another sample) a
product on all cores takes many times as long as one on a single core, so whoever computes many of them chooses.
"""

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["blas_threads"]

# Where numpy's wheels keep the library, and what its functions are called there.
_FOLDERS = ("../numpy.libs", ".dylibs")
_NAMES = ("scipy_openblas_{}_num_threads64_", "openblas_{}_num_threads64_", "openblas_{}_num_threads")


@dataclass(slots=True)
class _Users:
    """How many are using the setting, and what it was before the first came."""

    count: int = 0
    before: int = 0


_LOCK = threading.Lock()
_USERS = _Users()


@contextmanager
def blas_threads(count: int) -> Iterator[None]:
    """Let matrix products use so many threads; where the library is not known, nothing changes.

    Of several that overlap the first one counts, and the last one to end sets back what was.
    """
    library = _library()
    if library is None:
        yield
        return
    read, write = library
    with _LOCK:
        _USERS.count += 1
        if _USERS.count == 1:
            _USERS.before = read()
            write(count)
    try:
        yield
    finally:
        with _LOCK:
            _USERS.count -= 1
            if _USERS.count == 0:
                write(_USERS.before)


@cache
def _library() -> tuple[Any, Any] | None:
    """The functions that read and set the number of threads."""
    home = Path(np.__file__).parent
    for path in (path for folder in _FOLDERS for path in sorted((home / folder).glob("*openblas*"))):
        try:
            loaded = ctypes.CDLL(str(path.resolve()))
        except OSError:
            continue
        for name in _NAMES:
            read, write = (getattr(loaded, name.format(verb), None) for verb in ("get", "set"))
            if read is not None and write is not None:
                write.argtypes, write.restype = [ctypes.c_int], None
                return read, write
    return None
