"""One tensor of one operator, element by element: summary, largest errors, and every element in tables."""

import functools
import heapq
import math
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from roundoff.core.array_files import Unreadable
from roundoff.core.files import read_small, writing
from roundoff.core.tensors import Array
from roundoff.measure.statistics import release_pages
from roundoff.messages.message import english
from roundoff.vendors.ascend.counterparts import CompareJob, paired
from roundoff.vendors.ascend.errors import Code, NotCompared, Refused
from roundoff.vendors.ascend.folders import Loaded, Tensor, load_operator, plain_values
from roundoff.vendors.ascend.golden_pairs import EPSILON
from roundoff.vendors.ascend.layouts import shown
from roundoff.vendors.ascend.network import group_names, overflows
from roundoff.vendors.ascend.rows import write_private
from roundoff.vendors.ascend.rules import Operator

_BLOCK = 1 << 16
_TABLE_BLOCK = 1 << 13
"""Lines of a table that are made at once: those of more take memory that must be got afresh."""

_MAX_NAME = 254
_LONG_NAMES = "simple_op_mapping.csv"
_OURS = re.compile(r"\.npy|_summary\.txt|_(?:[0-9]+|absolute_error_topn|relative_error_topn)\.csv")


@dataclass(frozen=True, slots=True)
class Single:
    """Two tensors to be written out.

    Attributes:
        mine: The values under test, flat.
        golden: The golden values, flat.
        shape: Their shape, for coordinates.
        axes: What the coordinates are called, as in ``N C H W``.
        op: The operator.
        part: Which tensor of it, as in ``output_0``.
        mine_ops: Names of the operators under test, for the summary.
        golden_ops: Names of the golden operators.
    """

    mine: Array
    golden: Array
    shape: tuple[int, ...]
    axes: str
    op: str
    part: str
    mine_ops: str
    golden_ops: str

    @property
    def boolean(self) -> bool:
        """Whether both are boolean, so that there are no errors to compute."""
        return self.mine.dtype == np.bool_ == self.golden.dtype

    @property
    def prefix(self) -> str:
        """What the names of all files begin with."""
        return f"{self.op.replace('/', '_')}_{self.part}"


@dataclass(slots=True)
class Detail:
    """Which files to write, and what was found.

    Attributes:
        top: How many of the largest errors to list.
        lines: Elements per table.
        tables: Whether to write tables of all elements.
        strict: List one less where there are fewer elements, and compute in the tensors' own type, as the
            vendor does.
        written: The files.
        largest: The largest absolute errors, as lines of the table.
    """

    top: int = 20
    lines: int = 1_000_000
    tables: bool = True
    strict: bool = False
    written: list[Path] = field(default_factory=list)
    largest: list[str] = field(default_factory=list)


def write_single(single: Single, folder: Path, *, detail: Detail) -> Detail:
    """Write all files about one tensor; older ones of the same tensor are removed first."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _remove_old(folder, single.prefix)
    values = folder / _short(f"{single.prefix}.npy", folder)
    with writing(values, option="-out"):
        np.save(values, single.mine.reshape(single.shape))
    detail.written.append(values)
    top = _Top(detail.top if detail.top <= single.mine.size else _fewer(single, detail), single.boolean)
    extremes = _Extremes()
    # Which of equal errors are listed depends on how many are looked at at once; the vendor looks at all.
    size = max(single.mine.size, 1) if detail.strict else _BLOCK
    for start, block in _blocks(single, strict=detail.strict, size=size):
        top.add(start, block, exact=detail.strict)
        extremes.add(block)
    _summarize(single, folder, extremes=extremes, detail=detail)
    if detail.tables:
        _write_tables(single, folder, detail=detail)
    for kind, found in (("absolute", top.absolute), ("relative", top.relative)):
        lines = _top_lines(single, found, kind=kind)
        path = folder / _short(f"{single.prefix}_{kind}_error_topn.csv", folder)
        write_private(path, _header(single) + "".join(lines))
        detail.written.append(path)
        detail.largest = detail.largest or lines
    return detail


def _fewer(single: Single, detail: Detail) -> int:
    count = single.mine.size
    return max(count - 1, min(count, 1)) if detail.strict else count


@dataclass(frozen=True, slots=True)
class _ElementBlock:
    """A part of both tensors and their errors."""

    mine: Array
    golden: Array
    absolute: Array
    relative: Array


def _blocks(single: Single, *, strict: bool, size: int = _BLOCK) -> Iterator[tuple[int, _ElementBlock]]:
    for start in range(0, single.mine.size, size):
        mine, golden = (side[start : start + size] for side in (single.mine, single.golden))
        with np.errstate(all="ignore"):
            if single.boolean:
                absolute = relative = np.full(mine.size, np.nan)
            else:
                left, right = mine, golden
                if not strict and np.result_type(mine, golden) not in (np.float32, np.float64):
                    left, right = mine.astype(np.float64), golden.astype(np.float64)
                absolute = np.abs(left - right)
                relative = np.true_divide(absolute, np.abs(right))
        yield start, _ElementBlock(mine, golden, absolute, relative)
    release_pages(single.mine)
    release_pages(single.golden)


class _Extremes:
    """Smallest and largest errors; what is no number counts as zero."""

    def __init__(self) -> None:
        self.found: list[float] = [math.nan] * 4

    def add(self, block: _ElementBlock) -> None:
        for place, errors in ((0, block.absolute), (2, block.relative)):
            finite = np.where(np.isfinite(errors), errors, 0)
            self.found[place] = float(np.fmin(self.found[place], finite.min()))
            self.found[place + 1] = float(np.fmax(self.found[place + 1], finite.max()))


class _Top:
    """The elements with the largest errors."""

    def __init__(self, count: int, boolean: bool) -> None:
        self._count = count
        self._boolean = boolean
        self.absolute: list[tuple[float, int, float]] = []
        self.relative: list[tuple[float, int, float]] = []

    def add(self, start: int, block: _ElementBlock, *, exact: bool) -> None:
        if self._boolean:
            first = list(range(start, min(start + block.mine.size, self._count)))
            self.absolute += [(math.nan, place, math.nan) for place in first]
            self.relative = self.absolute
            return
        errors = (block.absolute, block.relative)
        self.absolute = self._best(self.absolute, start, errors, exact=exact)
        self.relative = self._best(self.relative, start, errors[::-1], exact=exact)

    def _best(
        self, known: list[tuple[float, int, float]], start: int, errors: tuple[Array, Array], *, exact: bool
    ) -> list[tuple[float, int, float]]:
        finite = np.where(np.isfinite(errors[0]), errors[0], errors[0].dtype.type(0))
        count = min(self._count, finite.size)
        places: Array = np.arange(finite.size)
        if count < finite.size:
            places = np.argpartition(finite, finite.size - count)[finite.size - count :]
            if not exact:
                # Among equal errors those at the end come first, whatever the blocks.
                limit = finite[places].min()
                places = np.union1d(places[finite[places] > limit], np.flatnonzero(finite == limit)[-count:])
        new = [(float(finite[place]), start + int(place), float(errors[1][place])) for place in places]
        return heapq.nlargest(self._count, [*known, *new], key=lambda item: item[:2])


def _top_lines(single: Single, found: Sequence[tuple[float, int, float]], *, kind: str) -> list[str]:
    lines = []
    for error, place, other in found:
        absolute, relative = (error, other) if kind == "absolute" else (other, error)
        mine, golden = single.mine[place], single.golden[place]
        values = f"{mine}\t,{golden}" if single.boolean else f"{mine:.6f}\t,{golden:.6f}"
        errors = f"{absolute:.6f}\t,{relative:.6f}\t".replace("nan", "-").replace("inf", "-")
        lines.append(f"{place},{_coordinates(single, place)},{values}\t,{errors}\n")
    return lines


def _coordinates(single: Single, place: int) -> str:
    return " ".join(str(axis) for axis in np.unravel_index(place, _padded(single.shape)))


def _padded(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape, *(1,) * (4 - len(shape)))


def _header(single: Single) -> str:
    return f"Index,{single.axes},NPUDump,GroundTruth,AbsoluteError,RelativeError\n"


def _summarize(single: Single, folder: Path, *, extremes: _Extremes, detail: Detail) -> None:
    names = ("MinAbsoluteError", "MaxAbsoluteError", "MinRelativeError", "MaxRelativeError")
    found = "".join(
        f"{name}:{'-' if single.boolean else f'{value:.6f}'}\n"
        for name, value in zip(names, extremes.found, strict=True)
    )
    path = folder / _short(f"{single.prefix}_summary.txt", folder)
    about = f"TotalCount:{single.mine.size}\nNPUDump:{single.mine_ops}\nGroundTruth:{single.golden_ops}\n"
    write_private(path, f"{about}Format:{single.axes}\n{found}")
    detail.written.append(path)


def _write_tables(single: Single, folder: Path, *, detail: Detail) -> None:
    """Write every element, `detail.lines` to a file, block by block."""
    shape = _padded(single.shape)
    blocks = _blocks(single, strict=detail.strict, size=_TABLE_BLOCK)
    path, room = folder, 0
    for start, block in blocks:
        done = 0
        while done < block.mine.size:
            if room == 0:
                path = folder / _short(f"{single.prefix}_{start + done}.csv", folder)
                write_private(path, _header(single))
                detail.written.append(path)
                room = detail.lines
            count = min(room, block.mine.size - done)
            with writing(path, option="-out"), path.open("ab") as file:
                file.write(_lines(single, block, shape, first=start + done, part=slice(done, done + count)))
            done += count
            room -= count


def _lines(
    single: Single, block: _ElementBlock, shape: tuple[int, ...], *, first: int, part: slice
) -> bytes | bytearray:
    values = [side[part] for side in (block.mine, block.golden, block.absolute, block.relative)]
    places = np.arange(first, first + values[0].size)
    coordinates = np.unravel_index(places, shape)
    rounded = None if single.boolean else _millionths(values)
    if rounded is None:
        return _slow_lines(single, [places, *coordinates], values).encode()
    columns = [*_digits(places)]
    for lead, axis, size in zip(f",{' ' * (len(shape) - 1)}", coordinates, shape, strict=True):
        columns += [_word(lead), *_digits(axis, most=size)]
    for side, numbers in zip(values, rounded, strict=True):
        whole = numbers // 1_000_000
        rest = numbers - whole * 1_000_000
        high = rest // 1000
        sign = np.where(np.signbit(side), _word(",-"), _word(","))
        columns += [sign, *_digits(whole), _DECIMALS[high], _LAST_DECIMALS[rest - high * 1000]]
    if not (known := np.isfinite(values[3])).all():
        # Of a relative error that is no number nothing is left but a dash.
        start = len(columns) - sum(1 for _ in _digits(rounded[3] // 1_000_000)) - 3
        columns[start:] = [np.where(known, column, 0) for column in columns[start:]]
        columns[start] = np.where(known, columns[start], _word(",-"))
    raw = _table_bytes(values[0].size, len(columns) + 1)
    table = np.frombuffer(raw, np.uint32).reshape(values[0].size, -1)
    for place, column in enumerate((*columns, _word("\n"))):
        table[:, place] = column
    return raw.translate(None, delete=b"\0")


@functools.lru_cache(maxsize=2)
def _table_bytes(rows: int, columns: int) -> bytearray:
    """Memory for lines, to be written over and over."""
    return bytearray(rows * columns * 4)


def _millionths(values: Sequence[Array]) -> list[Array] | None:
    """Magnitudes in millionths, rounded as they are printed; None when one cannot be told so."""
    found = []
    for place, side in enumerate(values):
        if side.dtype.kind not in "fiu":
            return None
        wide = np.abs(side.astype(np.float64))
        finite = np.isfinite(wide)
        if not finite.all():
            if place < len(values) - 1:
                return None
            wide = np.where(finite, wide, 0)
        scaled = wide * 1e6
        if scaled.max(initial=0) >= _MOST_MILLIONTHS:
            return None
        numbers: Array = np.rint(scaled)
        close: list[int] = []
        if side.dtype.itemsize > _EXACT_BYTES:
            # The product is rounded itself: next to the middle between two texts, the text decides.
            close = np.flatnonzero(np.abs(np.abs(scaled - numbers) - 0.5) <= scaled * EPSILON).tolist()
        numbers = numbers.astype(np.int64)
        for each in close:
            numbers[each] = int(f"{wide[each]:.6f}".replace(".", ""))
        found.append(numbers)
    return found


def _digits(numbers: Array, *, most: int | None = None) -> Iterator[Array]:
    """Whole numbers as columns of words of four characters, empty ones in front."""
    high = int(numbers.max(initial=0)) if most is None else most - 1
    columns: list[Array] = []
    table = _LAST_DIGITS
    while not columns or high:
        above = numbers // _WORD
        columns.append(table[numbers - above * _WORD + np.where(above > 0, _WORD, 0)])
        numbers, high, table = above, high // _WORD, _DIGITS
    return reversed(columns)


def _words(texts: Iterable[str]) -> Array:
    """Texts of up to four characters as numbers of four bytes, filled up with zeros."""
    return np.array([text.encode() for text in texts], "S4").view(np.uint32)


@functools.cache
def _word(text: str) -> Array:
    return _words([text])


_EXACT_BYTES = 4
"""Numbers of so many bytes times a million take fewer bits than float64 has."""

_WORD = 10_000
_MOST_MILLIONTHS = 2.0**52
_FILLED = [f"{number:04d}" for number in range(_WORD)]
_LAST_DIGITS = _words([*map(str, range(_WORD)), *_FILLED])
"""Four digits: as they end a number, then as they follow other ones."""

_DIGITS = _words(["", *map(str, range(1, _WORD)), *_FILLED])
_DECIMALS = _words(f".{number:03d}" for number in range(1000))
_LAST_DECIMALS = _words(f"{number:03d}\t" for number in range(1000))


def _slow_lines(single: Single, places: Sequence[Array], values: Sequence[Array]) -> str:
    """The same, one number after the other: of truth values, and of what is very large or no number."""
    columns = [axis.tolist() for axis in places]
    mine, golden, absolute, relative = values
    axes = " ".join(["%d"] * (len(places) - 1))
    if single.boolean:
        pattern = f"%d,{axes},%s\t,%s\t,-\t,-\n"
        return "".join(map(pattern.__mod__, zip(*columns, mine.tolist(), golden.tolist(), strict=True)))
    pattern = f"%d,{axes},%.6f\t,%.6f\t,%.6f\t,%s\n"
    finite = np.isfinite(relative).tolist()
    shown = [f"{value:.6f}\t" if known else "-" for value, known in zip(relative.tolist(), finite, strict=True)]
    rows = zip(*columns, mine.tolist(), golden.tolist(), absolute.tolist(), shown, strict=True)
    return "".join(map(pattern.__mod__, rows))


def _remove_old(folder: Path, prefix: str) -> None:
    names = _long_names(folder)
    for path in folder.iterdir():
        name = names.get(path.name, path.name)
        if name.startswith(prefix) and _OURS.fullmatch(name[len(prefix) :]):
            path.unlink()


def _long_names(folder: Path) -> dict[str, str]:
    path = folder / _LONG_NAMES
    if not path.is_file():
        return {}
    text = read_small(path, what=english("The list of long names")).decode(errors="replace")
    pairs = (line.split(",", 1) for line in text.splitlines() if "," in line)
    return dict(pairs)


def _short(name: str, folder: Path) -> str:
    """A name that the disk can take; one that is too long becomes a hash, noted in a mapping."""
    if len(name.encode()) <= _MAX_NAME:
        return name
    suffix = "_" + name.rpartition("_")[2] if name.endswith((".csv", ".txt")) else ".npy"
    short = f"{uuid.uuid3(uuid.NAMESPACE_DNS, name).hex}{suffix}"
    with writing(folder, option="-out"), (folder / _LONG_NAMES).open("a", encoding="utf-8") as file:
        file.write(f"{short},{name}\n")
    return short


# Finding the one tensor that a single-operator comparison is about.

_AGAIN = english("check the name and the folders")
_SCALES = english("add --record record.txt or --deploy MODEL of the quantized model")


@dataclass(frozen=True, slots=True)
class Asked:
    """Which tensor: of which operator, ``input`` or ``output``, and which one."""

    op: str
    role: str = "output"
    index: int = 0

    @property
    def tensor(self) -> str:
        """The tensor as messages name it."""
        return f"{self.op}:{self.role}:{self.index}"


def find_single(job: CompareJob, asked: Asked) -> Single:
    """Find the tensor and its counterpart.

    Raises:
        Refused: There is no such tensor, or none to compare it with.
    """
    try:
        if not job.rule.groups:
            return _without_rule(job, asked)
        return _by_rule(job, asked)
    except Unreadable as error:
        raise Refused(
            english("{tensor} cannot be read: {problem}.", tensor=asked.tensor, problem=error.problem),
            code=Code.DATA,
            fix=error.fix,
        ) from error
    except OSError as error:
        what = english("{tensor} cannot be read: {strerror}.", tensor=asked.tensor, strerror=error.strerror)
        raise Refused(what, code=Code.DATA, fix=english("check the files and the disk")) from error


def overflowing(job: CompareJob, op: str) -> list[str]:
    """The float16 tensors of an operator that overflow, as ``output:0``."""
    try:
        loaded = load_operator(job.mine.find(op), strict=job.strict)
    except NotCompared:
        return []
    quiet = replace(job, warn=lambda text: None)
    return [
        f"{tensor.about.role}:{tensor.about.index}"
        for tensor in (*loaded.inputs, *loaded.outputs)
        if overflows(quiet, op, tensor) == "YES"
    ]


def _by_rule(job: CompareJob, asked: Asked) -> Single:
    try:
        operator = job.rule.find(asked.op, warn=lambda text: None)
    except NotCompared as error:
        holders = [each for each in job.rule.in_order if asked.op in (*each.parts, *each.originals)]
        if job.strict or not holders:
            raise Refused(error.message, code=Code.PARAMETER, fix=_AGAIN) from error
        # A layer that was fused into an operator is looked at in the last one that holds it.
        operator = holders[-1]
        job.warn(english("{op} is a part of {operator}, which is compared.", op=asked.op, operator=operator.name))
        asked = replace(asked, op=operator.name)
    group = job.rule.groups[job.rule.group_of[asked.op]]
    if operator.inner:
        what = english('[{op}] The op "{op}" is inner node for multi to multi relation.', op=asked.op)
        raise Refused(
            what, code=Code.UNSUPPORTED, fix=english("choose the operator of the group that has an original")
        )
    if operator.in_quant_pair and job.strict:
        what = english("[{op}] The -op param should not specify an operator in quant/dequant pair.", op=asked.op)
        raise Refused(what, code=Code.UNSUPPORTED, fix=english("choose the dequantizer behind it"))
    tensor = _chosen(asked, _loaded(job, asked, operator))
    try:
        found = paired(job, operator, tensor, detail=True)
    except NotCompared as error:
        if error.code is Code.NO_DUMP:
            none = english(
                "[{op}] There is no the ground truth dump file for {tensor}.", op=asked.op, tensor=asked.tensor
            )
            raise Refused(none, code=error.code, fix=_AGAIN) from error
        raise Refused(
            error.message or english("{tensor} cannot be compared.", tensor=asked.tensor),
            code=error.code,
            fix=_SCALES if error.code is Code.UNSUPPORTED else _AGAIN,
        ) from error
    mine_ops, golden_ops = group_names(group)
    return Single(
        found.fitted.mine,
        found.fitted.golden,
        found.fitted.shape,
        _axes(tensor, found.origin.format),
        asked.op,
        f"{asked.role}_{asked.index}",
        mine_ops.replace(",", " "),
        golden_ops.replace(",", " ") or "*",
    )


def _loaded(job: CompareJob, asked: Asked, operator: Operator) -> Loaded:
    try:
        output = None if job.mine.kind.value == "Offline" else 0
        return load_operator(job.mine.find(operator.name, output), strict=job.strict)
    except NotCompared as error:
        none = english('[{op}] There is no dump file for my output operator "{op}".', op=asked.op)
        what = error.message or english("{none} The type is {type}.", none=none, type=operator.type)
        raise Refused(what, code=error.code, fix=_AGAIN) from error


def _without_rule(job: CompareJob, asked: Asked) -> Single:
    sides = []
    for flag, folder in (("-m", job.mine), ("-g", job.golden)):
        try:
            sides.append(_chosen(asked, load_operator(folder.find(asked.op), strict=job.strict)))
        except NotCompared as error:
            what = english("Failed to find {op} dump data from {flag} dump data path.", op=asked.op, flag=flag)
            raise Refused(error.message or what, code=error.code, fix=_AGAIN) from error
    mine, golden = sides
    if not job.strict and (mine.shape != golden.shape or mine.about.format != golden.about.format):
        return _undone(asked, mine, golden)
    if mine.shape != golden.shape:
        what = english(
            "My Output data shape {shape} not equal to Ground Truth data shape {shape2}.",
            shape=shown(mine.shape),
            shape2=shown(golden.shape),
        )
        raise Refused(what, code=Code.DATA, fix=english("compare dumps of the same model and batch"))
    if mine.about.format != golden.about.format:
        what = english(
            "The format does not match ({format} vs {format2}).",
            format=mine.about.format,
            format2=golden.about.format,
        )
        raise Refused(what, code=Code.FORMAT, fix=english("give the rules with -f and -cf"))
    return Single(
        mine.values.reshape(-1),
        golden.values.reshape(-1),
        mine.shape,
        _axes(mine, "", labelled=job.strict),
        asked.op,
        f"{asked.role}_{asked.index}",
        asked.op,
        asked.op,
    )


def _undone(asked: Asked, mine: Tensor, golden: Tensor) -> Single:
    """Two tensors that devices laid out differently, in the layout of the original."""
    left, right = (plain_values(side) for side in (mine, golden))
    if left.shape != right.shape:
        what = english(
            "My Output data shape {shape} not equal to Ground Truth data shape {shape2}.",
            shape=shown(left.shape),
            shape2=shown(right.shape),
        )
        raise Refused(what, code=Code.DATA, fix=english("compare dumps of the same model and batch"))
    part = f"{asked.role}_{asked.index}"
    axes = _axes(mine, "")
    return Single(left.reshape(-1), right.reshape(-1), left.shape, axes, asked.op, part, asked.op, asked.op)


def _chosen(asked: Asked, loaded: Loaded) -> Tensor:
    tensors = loaded.inputs if asked.role == "input" else loaded.outputs
    if asked.index >= len(tensors):
        allowed = english("[0, {count}). Please check the index.", count=len(tensors))
        what = english(
            "[{op}] The {role} index ({index}) is out of range {allowed}",
            op=asked.op,
            role=asked.role,
            index=asked.index,
            allowed=allowed,
        )
        raise Refused(what, code=Code.INDEX, fix=english("choose another index with -i or -o"))
    return tensors[asked.index]


def _axes(tensor: Tensor, golden: str, *, labelled: bool = True) -> str:
    """What coordinates are called."""
    name = tensor.about.format
    if not tensor.about.shape:
        return "ID"
    if not labelled and len(tensor.shape) > 4:
        return " ".join(f"axis{place}" for place in range(len(tensor.shape)))
    if name in ("NDC1HWC0", "NCDHW", "NDHWC", "DHWCN", "DHWNC", "FRACTAL_Z_3D", "FRACTAL_Z_3D_TRANSPOSE"):
        return "N C D H W"
    return " ".join(golden) if name == "FRACTAL_Z" and golden else "N C H W"
