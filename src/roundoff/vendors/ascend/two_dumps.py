"""Comparing two dumps of NPUs without any rule: operators of one name, tensor by tensor."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from roundoff.core.array_files import Unreadable, map_array, read_header
from roundoff.core.files import regular_file
from roundoff.core.tensors import Array, as_values
from roundoff.tensors import open_source
from roundoff.tensors.ascend_dump.layouts import restore, way_back
from roundoff.vendors.ascend.algorithms import Algorithm, ComparedTensors, GoldenPair, compare_values
from roundoff.vendors.ascend.counterparts import CompareJob
from roundoff.vendors.ascend.errors import Code, NotCompared, Refused
from roundoff.vendors.ascend.folders import Folder, FoundFile, Loaded, Tensor, load_operator
from roundoff.vendors.ascend.layouts import Fitted, shown
from roundoff.vendors.ascend.network import NetworkOutcome, overflows, sides
from roundoff.vendors.ascend.rows import Row

__all__ = [
    "Twin",
    "compare_files",
    "compare_twin",
    "pair_by_name",
]


_MISSING_SLICES = "This is a FFTS+ mode dump data, The number of files does not match the number of thread"


@dataclass(frozen=True, slots=True)
class Twin:
    """An operator and its files on both sides; none on a side that lacks it."""

    index: int
    op: str
    mine: tuple[FoundFile, ...]
    golden: tuple[FoundFile, ...]


def pair_by_name(mine: Folder, golden: Folder) -> list[Twin]:
    """All operators of both sides, those under test first, each in the order of execution."""
    found: dict[str, None] = {}
    for folder in (mine, golden):
        in_order = sorted(folder.files.items(), key=lambda item: item[1][-1].time)
        found |= dict.fromkeys(op for op, _ in in_order)
    return [
        Twin(index, op, tuple(mine.files.get(op, ())), tuple(golden.files.get(op, ())))
        for index, op in enumerate(found)
    ]


def compare_twin(job: CompareJob, twin: Twin) -> NetworkOutcome:
    """Compare one operator."""
    if not twin.mine or not twin.golden:
        return _alone(job, twin)
    try:
        mine, golden = (load_operator(files, strict=job.strict) for files in (twin.mine, twin.golden))
    except NotCompared as error:
        job.warn(error.message)
        row = Row(twin.index, 0, "NaN", twin.op, golden=twin.op, reason=error.message)
        return NetworkOutcome((row,), error.code, True)
    name = mine.op_name if mine.sliced and mine.op_name else twin.op
    rows: list[Row] = []
    reasons: list[str] = []
    for role, left, right in (("input", mine.inputs, golden.inputs), ("output", mine.outputs, golden.outputs)):
        reason = _why_not(job, twin.op, role, left=left, right=right)
        if reason:
            reasons.append(reason)
        else:
            rows += [
                _compare(job, twin, f"{name}:{role}:{place}", tensors=pair, paths=(mine.path, golden.path))
                for place, pair in enumerate(zip(left, right, strict=True))
            ]
    told = [] if mine.complete else [_MISSING_SLICES]
    if rows:
        extra = _told(job, reasons, mine=mine, golden=golden)
        return NetworkOutcome((*rows, *(_row(twin, "NaN", reason=reason) for reason in extra)), Code.FINE, True)
    return NetworkOutcome((_row(twin, "NaN", reason=",".join([*told, *reasons])),), Code.DATA, True)


def _told(job: CompareJob, reasons: Sequence[str], *, mine: Loaded, golden: Loaded) -> list[str]:
    """What else there is to say of an operator that was compared in part, which the vendor keeps to itself."""
    if job.strict:
        return []
    damaged = [f"The file {side.path} is damaged: {side.damage}." for side in (mine, golden) if side.damage]
    return [reason for reason in reasons if "There is no" not in reason] + damaged


def _alone(job: CompareJob, twin: Twin) -> NetworkOutcome:
    side = "ground truth" if twin.mine else "my output"
    message = f'[{twin.op}] There is no the {side} dump file for the op "{twin.op}".'
    job.warn(message)
    row = _row(twin, "NaN", reason=message)
    row = replace(row, golden="*") if twin.mine else replace(row, mine="*")
    return NetworkOutcome((row,), Code.NO_DUMP, False)


def _why_not(job: CompareJob, op: str, role: str, *, left: Sequence[Tensor], right: Sequence[Tensor]) -> str:
    """Why inputs or outputs cannot be compared; empty when they can."""
    if len(left) != len(right):
        message = f"[{op}] The number of {role} does not match ({len(left)} vs {len(right)})."
        job.warn(message)
        return message
    if not left:
        return f"[{op}] There is no {role}. Skip the {op}:{role}."
    for place, (mine, golden) in enumerate(zip(left, right, strict=True)):
        what = _difference(job, mine, golden)
        if what:
            message = f"[{op}] The {what} for {op}:{role}:{place}."
            job.warn(message)
            return message
    return ""


def _difference(job: CompareJob, mine: Tensor, golden: Tensor) -> str:
    if not job.restore and mine.about.format != golden.about.format:
        return f"format does not match ({mine.about.format} vs {golden.about.format})"
    try:
        left, right = mine.shape, golden.shape
    except Unreadable as error:
        return f"slices do not fit ({error.problem})"
    return f"shape does not match ({shown(left)} vs {shown(right)})" if left != right else ""


def _compare(
    job: CompareJob, twin: Twin, name: str, *, tensors: tuple[Tensor, Tensor], paths: tuple[str, str]
) -> Row:
    mine, golden = tensors
    kind = twin.mine[-1].name
    row = replace(
        _row(twin, kind.op_type if kind else "NaN", tensor=name),
        mine_type=mine.dtype,
        mine_address=mine.address,
        golden_type=golden.dtype,
        golden_address=golden.address,
        shape=f"[{','.join(map(str, mine.shape))}]",
        overflow=overflows(job, twin.op, mine) if job.overflow else "NaN",
    )
    try:
        left, right = ((_restored(side) if job.restore else side.values).reshape(-1) for side in tensors)
    except (Unreadable, OSError) as error:
        problem = error.problem if isinstance(error, Unreadable) else error.strerror
        reason = f"[{twin.op}] {name} cannot be read: {problem}."
        job.warn(reason)
        return replace(row, reason=reason)
    if left.size != right.size:
        reason = f"[{twin.op}] The number of elements does not match ({left.size} vs {right.size}) for {name}."
        job.warn(reason)
        return replace(row, reason=reason)
    values, messages = sides(job, Fitted(left, right, mine.shape), mine=paths[0], golden=paths[1])
    return replace(row, values=tuple(values), reason=",".join(messages))


def _restored(tensor: Tensor) -> Array:
    about = tensor.about
    way = way_back(about.format, tensor.shape, original=about.original_shape, groups=about.groups)
    return restore(tensor.values, way).array


def _row(twin: Twin, op_type: str, *, tensor: str = "NaN", reason: str = "") -> Row:
    return Row(twin.index, 0, op_type, twin.op, golden=twin.op, tensor=tensor, reason=reason)


# Two arrays in two files, compared without names or rules.


def compare_files(
    mine: Path, golden: Path, *, algorithms: dict[str, Algorithm], warn: Callable[[str], None], most: int = 0
) -> tuple[dict[str, str], list[str]]:
    """Compare two .npy files, files of text, or dumps with one output.

    Returns:
        What the algorithms print by name, and the messages.

    Raises:
        Refused: They cannot be read, or their shapes differ.
    """
    left, right = (_read(path) for path in (mine, golden))
    if left.shape != right.shape:
        what = (
            f"My output shape {left.shape} in '{mine}' does not match the ground truth shape {right.shape} "
            f"in '{golden}'."
        )
        raise Refused(
            what, code=Code.SHAPE, fix="give arrays of one shape, or use 'roundoff compare', which aligns"
        )
    flat = [side.reshape(-1)[: most or None] for side in (left, right)]
    case = ComparedTensors(GoldenPair(*flat), all(size == 1 for size in left.shape), str(mine), str(golden))
    values, messages = compare_values(case, algorithms, warn=warn)
    return dict(zip(algorithms, values, strict=True)), messages


def _of_dump(path: Path) -> Array:
    """The one output of a dump file."""
    source = open_source(path, format="ascend-dump")
    outputs = [info.name for info in source.tensors if ".input." not in info.name]
    if len(outputs) != 1:
        what = f"{path} holds {len(outputs)} outputs."
        raise Refused(what, code=Code.DATA, fix="give folders and -op, or convert it to .npy first")
    return source.read(outputs[0], source.samples[0])


def _read(path: Path) -> Array:
    regular_file(path, what="The file")
    try:
        if path.suffix == ".txt":
            return np.loadtxt(path, dtype=np.float32)
        if path.suffix != ".npy":
            return _of_dump(path)
        header = read_header(path)
        mapped = map_array(
            path, offset=header.offset, dtype=header.dtype, shape=header.shape, fortran=header.fortran
        )
        return as_values(mapped)
    except Unreadable as error:
        raise Refused(f"{path} cannot be read: {error.problem}.", code=Code.DATA, fix=error.fix) from error
    except ValueError as error:
        what = f"{path} cannot be read: {error}."
        raise Refused(what, code=Code.DATA, fix="give a .npy file, or numbers as text") from error
