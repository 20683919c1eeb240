"""What calibration observed, in one file, so that another plan needs no new run.

The file is a .npz archive: ``about`` is JSON as bytes and lists the tensors; the other members hold, one tensor
after the other, the outermost values, the elements of small tensors, and the histograms of all others.
"""

import contextlib
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.core.array_files import MAX_HEADER_BYTES, Member, Unreadable, list_members, parse_header
from roundoff.core.claims import staged_file
from roundoff.core.files import regular_file, writing
from roundoff.core.tensors import Array
from roundoff.core.untrusted import parse_json
from roundoff.errors import BadInput
from roundoff.messages.message import english
from roundoff.quantize.calibration.calibration import Calibration
from roundoff.quantize.calibration.histogram import FloatHistogram, Grid
from roundoff.quantize.calibration.methods import Detail
from roundoff.quantize.calibration.observer import Observation

_FORMAT = "roundoff-calibration"
_VERSION = 1
_AGAIN = english("observe the samples again, without this file")
_MEMBERS = {"low": "f", "high": "f", "elements": "f", "exponents": "iu", "counts": "iu"}
_COMPRESSION = 1  # counts are mostly zeros and small numbers; more effort gains little
_INFINITE_EXPONENT = 255  # as float32 stores it
_MOST_BYTES = 2**32
"""A member is in memory whole; no real one comes near this."""


@dataclass(frozen=True, slots=True)
class _TensorEntry:
    """One tensor in ``about``; how much of each member is its own follows from it."""

    name: str
    axis: int | None
    rank: int
    rows: int
    count: int
    nans: int
    infs: int
    elements: int | None = None
    grid: tuple[int, int] | None = None
    sides: int = 0


@dataclass(frozen=True, slots=True)
class _About:
    format: str
    version: int
    model_hash: str
    samples: int
    detail: Detail
    tensors: tuple[_TensorEntry, ...]
    left_out: int = 0


def save_calibration(calibration: Calibration, path: Path, *, model_hash: str = "") -> None:
    """Write a calibration to a file, whole or not at all.

    Args:
        calibration: What was observed.
        path: The file; usually named ``calibration.npz``.
        model_hash: Identifies the model; asked for again when the file is read.

    Raises:
        BadInput: The file cannot be written.
    """
    observations = calibration.observations
    entries = tuple(_entry(name, each) for name, each in observations.items())
    left_out = calibration.left_out
    about = _About(_FORMAT, _VERSION, model_hash, calibration.samples, calibration.detail, entries, left_out)
    told = {name: each for name, each in asdict(about).items() if name != "left_out" or each}
    text = json.dumps(told, ensure_ascii=False).encode()
    arrays = {"about": np.frombuffer(text, np.uint8), **_arrays(list(observations.values()))}
    with writing(path):
        target = Path(os.path.realpath(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        with staged_file(target) as staged:
            with zipfile.ZipFile(staged, "w", zipfile.ZIP_DEFLATED, compresslevel=_COMPRESSION) as archive:
                for name, array in arrays.items():
                    # Opened by name a member has no date, so the same observation gives the same file.
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                        np.lib.format.write_array(file, array, allow_pickle=False)
            staged.replace(target)


def _arrays(observations: list[Observation]) -> dict[str, Array]:
    histograms = [each.histogram for each in observations if each.histogram is not None]
    counts = _joined([each.counts for each in histograms], np.int64)
    return {
        "low": _joined([each.low for each in observations], np.float64),
        "high": _joined([each.high for each in observations], np.float64),
        "elements": _joined([each.elements for each in observations if each.elements is not None], np.float32),
        "exponents": _joined([each.exponent for each in histograms], np.int64),
        "counts": counts.astype(np.min_scalar_type(int(counts.max(initial=0)))),
    }


def load_calibration(path: Path, *, model_hash: str = "") -> Calibration:
    """Read a calibration that was saved.

    Args:
        path: The file.
        model_hash: What identifies the model it is meant for; empty to take any.

    Raises:
        BadInput: The file cannot be read, is damaged or something else, or belongs to another model.
    """
    regular_file(path, what=english("The calibration file"))
    with _reading(path):
        members = {member.name.removesuffix(".npy"): member for member in list_members(path)}
        about = _about(members)
        arrays = {name: _array(members, name, kinds) for name, kinds in _MEMBERS.items()}
        if model_hash and about.model_hash != model_hash:
            raise BadInput(
                english("{path} was observed on another model, or another version of it.", path=path), fix=_AGAIN
            )
        observations = _observations(about, arrays)
    return Calibration(observations, about.samples, about.detail, about.left_out)


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except Unreadable as error:
        raise BadInput(
            english("{path} is not a usable calibration file: {problem}.", path=path, problem=error.problem),
            fix=_AGAIN,
        ) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadInput(
            english("{path} cannot be read: {reason}.", path=path, reason=reason),
            fix=english("check the path and the disk"),
        ) from error


def _entry(name: str, each: Observation) -> _TensorEntry:
    histogram = each.histogram
    return _TensorEntry(
        name=name,
        axis=each.axis,
        rank=each.rank,
        rows=each.rows,
        count=each.count,
        nans=each.nans,
        infs=each.infs,
        elements=None if each.elements is None else each.elements.shape[1],
        grid=None if histogram is None else (histogram.grid.bits, histogram.grid.doublings),
        sides=0 if histogram is None else histogram.counts.shape[1],
    )


def _joined(parts: list[Array], dtype: Any) -> Array:
    return np.concatenate([np.empty(0, dtype), *(part.ravel() for part in parts)])


def _about(members: Mapping[str, Member]) -> _About:
    from pydantic import TypeAdapter, ValidationError

    text = _array(members, "about", "u").astype(np.uint8).tobytes()
    try:
        content = parse_json(text, "about")
    except BadInput as error:
        raise Unreadable(english("its table of contents is damaged")) from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise Unreadable(english("it was not written by a calibration"))
    if content.get("version") != _VERSION:
        raise Unreadable(
            english(
                "its layout has the version {get!r}, this program knows {version}",
                get=content.get("version"),
                version=_VERSION,
            )
        )
    try:
        about: _About = TypeAdapter(_About).validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise Unreadable(
            english("its table of contents is damaged at {where}: {first}", where=where, first=first["msg"])
        ) from error
    if min(about.samples, about.left_out) < 0 or len({entry.name for entry in about.tensors}) < len(about.tensors):
        raise Unreadable(
            english("its table of contents is damaged: it lists a tensor twice, or no number of samples")
        )
    for entry in about.tensors:
        _check(entry)
    return about


def _check(entry: _TensorEntry) -> None:
    bits, doublings = entry.grid or (1, 1)
    sizes = (entry.rows, entry.count, entry.nans, entry.infs, entry.rank, entry.elements or 0)
    sound = (
        min(sizes) >= 0
        and entry.nans + entry.infs <= entry.count
        and 0 <= bits <= 20
        and 1 <= doublings <= 256
        and entry.sides in ((1, 2) if entry.grid else (0,))
        and (entry.axis is None) == (entry.rank == 0)
        and (entry.rows == 1 if entry.axis is None else 0 <= entry.axis < entry.rank)
        and (entry.elements is None or entry.elements * entry.rows == entry.count)
    )
    if not sound:
        raise Unreadable(english("what it says of tensor {name!r} cannot be", name=entry.name))


def _array(members: Mapping[str, Member], name: str, kinds: str) -> Array:
    member = members.get(name)
    if member is None:
        raise Unreadable(english("it has no member {name!r}", name=name))
    if member.size > _MOST_BYTES:
        raise Unreadable(english("its member {name!r} claims {size} bytes", name=name, size=member.size))
    header = parse_header(member.head(MAX_HEADER_BYTES), length=member.size)
    values = header.values(member.content())
    if values.ndim != 1 or values.dtype.kind not in kinds:
        raise Unreadable(
            english(
                "its member {name!r} is {dtype} of {ndim} axes", name=name, dtype=values.dtype, ndim=values.ndim
            )
        )
    return values


def _observations(about: _About, arrays: Mapping[str, Array]) -> dict[str, Observation]:
    cut = {name: _Cutter(name, array) for name, array in arrays.items()}
    found = {}
    for entry in about.tensors:
        rows = entry.rows
        low = cut["low"].take(rows).astype(np.float64)
        high = cut["high"].take(rows).astype(np.float64)
        elements = histogram = None
        if entry.elements is not None:
            elements = cut["elements"].take(rows * entry.elements).astype(np.float32).reshape(rows, entry.elements)
        elif entry.grid is not None:
            grid = Grid(*entry.grid)
            exponents = cut["exponents"].take(rows).astype(np.int64)
            counts = cut["counts"].take(rows * entry.sides * grid.bins).astype(np.int64)
            histogram = FloatHistogram(grid, exponents, counts.reshape(rows, entry.sides, grid.bins))
        each = Observation(
            entry.axis, entry.rank, entry.count, entry.nans, entry.infs, low, high, elements, histogram
        )
        _check_numbers(entry.name, each)
        found[entry.name] = each
    for cutter in cut.values():
        cutter.finish()
    return found


def _check_numbers(name: str, each: Observation) -> None:
    """Refuse numbers that no tensor can have: they would end in senseless scales."""
    histogram = each.histogram
    sound = not np.isnan(each.low).any() and not np.isnan(each.high).any()
    if histogram is not None:
        sound &= bool(np.all((histogram.exponent >= 0) & (histogram.exponent < _INFINITE_EXPONENT)))
        sound &= bool(np.all(histogram.counts >= 0)) and int(histogram.counts.sum()) == each.finite
    if each.elements is not None:
        sound &= int(np.count_nonzero(np.isfinite(each.elements))) == each.finite
    if not sound:
        raise Unreadable(english("the numbers of tensor {name!r} contradict each other", name=name))


class _Cutter:
    """Takes one piece after the other off an array."""

    def __init__(self, name: str, array: Array) -> None:
        self._name, self._array, self._start = name, array, 0

    def take(self, length: int) -> Array:
        piece = self._array[self._start : self._start + length]
        if piece.size < length:
            raise Unreadable(english("its member {name!r} ends too early", name=self._name))
        self._start += length
        return piece

    def finish(self) -> None:
        if self._start != self._array.size:
            raise Unreadable(
                english("its member {name!r} holds more than its table of contents says", name=self._name)
            )
