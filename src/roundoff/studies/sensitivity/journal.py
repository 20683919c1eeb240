"""A file that remembers what was measured, so that a run that was ended goes on where it was.

One line of JSON per measurement, each under a hash of everything it depends on: the model, the quantizers, what
was switched, the samples and how they were run. What depends on something else is simply not found.
"""

import json
import math
from pathlib import Path
from typing import IO, Any

import numpy as np

from roundoff.core.files import reading, regular_file, writing
from roundoff.core.tensors import Array
from roundoff.errors import BadInput

__all__ = ["Journal"]

_HEADER = {"roundoff": "sensitivity journal", "schema": 1}
_OPTION = "--resume"
_SPECIAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


class Journal:
    """Measurements by their hash, in memory and in a file.

    Args:
        path: The file; it is made when it does not exist. Without one nothing is remembered.

    Attributes:
        damaged: Lines of the file that are no measurements; what they held is measured again.

    Raises:
        BadInput: The file is something else, or cannot be read or written.
    """

    damaged: int

    def __init__(self, path: Path | None) -> None:
        self.damaged = 0
        self._known: dict[str, Array] = {}
        self._file: IO[str] | None = None
        self._path = path
        if path is None:
            return
        whole_bytes = self._read(path) if path.exists() else 0
        with writing(path, option=_OPTION):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", encoding="utf-8")
            # What a killed run left of its last line goes.
            self._file.truncate(whole_bytes)
        if not whole_bytes:
            self._write(_HEADER)

    @property
    def used(self) -> bool:
        """Whether there is a file."""
        return self._file is not None

    def find(self, key: str) -> Array | None:
        """What was measured under a hash."""
        return self._known.get(key)

    def add(self, key: str, values: Array) -> None:
        """Remember a measurement; it is on the disk when this returns."""
        if self._file is None:
            return
        self._known[key] = values
        numbers = [number if math.isfinite(number) else str(number) for number in values.ravel().tolist()]
        self._write({"key": key, "shape": values.shape, "values": numbers})

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, entry: dict[str, Any]) -> None:
        if self._file is not None and self._path is not None:
            with writing(self._path, option=_OPTION):
                self._file.write(json.dumps(entry) + "\n")
                self._file.flush()

    def _read(self, path: Path) -> int:
        """Take in a file; gives the bytes up to the end of its last whole line."""
        size = regular_file(path, what="The journal")
        with reading(path, what="The journal"):
            data = path.read_bytes() if size else b""
        whole = data[: data.rfind(b"\n") + 1]
        lines = whole.splitlines()
        if (lines and _parsed(lines[0]) != _HEADER) or (data and not lines and not _begins_header(data)):
            raise BadInput(
                f"{path} is not a journal of 'roundoff sensitivity'.", fix="name a file that does not exist yet"
            )
        for line in lines[1:]:
            found = _measurement(_parsed(line))
            if found is None:
                self.damaged += 1
            else:
                self._known[found[0]] = found[1]
        return len(whole)


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _measurement(entry: Any) -> tuple[str, Array] | None:
    """What a line says, and under which hash; None when it is damaged."""
    try:
        key, shape, values = entry["key"], entry["shape"], entry["values"]
        numbers = [_SPECIAL[number] if isinstance(number, str) else float(number) for number in values]
        array = np.array(numbers, dtype=np.float64).reshape([int(size) for size in shape])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return (key, array) if isinstance(key, str) else None


def _begins_header(data: bytes) -> bool:
    return json.dumps(_HEADER).encode().startswith(data)
