"""Comparing a network: every tensor of an offline model with its golden counterpart, group by group."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from roundoff.core.array_files import Unreadable, map_npy
from roundoff.core.files import regular_file
from roundoff.core.tensors import Array, as_values
from roundoff.measure.statistics import release_pages
from roundoff.messages.message import english
from roundoff.tensors import open_source
from roundoff.tensors.ascend_dump.layouts import LaidOutValues, relayout, restore
from roundoff.vendors.ascend.algorithms import Algorithm, ComparedTensors, compare_values
from roundoff.vendors.ascend.causes import FaultCause, Fused, cause_of, dead_channels
from roundoff.vendors.ascend.counterparts import (
    CODED_TYPES,
    CONSTANT_TYPES,
    CompareJob,
    PairedTensor,
    paired,
    writer_of,
)
from roundoff.vendors.ascend.dump_rules import operator_of
from roundoff.vendors.ascend.errors import Code, NotCompared, Refused, farthest, why_unread
from roundoff.vendors.ascend.folders import (
    Folder,
    FoundFile,
    Kind,
    Loaded,
    Tensor,
    escaped,
    load_operator,
    way_back,
)
from roundoff.vendors.ascend.golden_pairs import GoldenPair
from roundoff.vendors.ascend.layouts import Fitted, shown
from roundoff.vendors.ascend.rows import Row
from roundoff.vendors.ascend.rules import DEQUANT_NAME, Operator, Relation, is_dequantizer, relation_of

_FLOAT16_MAX = 65504


@dataclass(frozen=True, slots=True)
class NetworkOutcome:
    """What came of one group of operators.

    Attributes:
        rows: Its rows.
        code: The vendor's code for it.
        matched: Whether there was a dump to compare.
    """

    rows: tuple[Row, ...]
    code: Code = Code.FINE
    matched: bool = False


def compare_group(job: CompareJob, group: Sequence[Operator]) -> NetworkOutcome:
    """Compare the operators of one group."""
    relation = relation_of(list(group))
    names = group_names(group) if relation not in (Relation.ONE_TO_ONE, Relation.MANY_TO_ONE) else None
    if relation is Relation.L1_FUSION:
        return _compare_several(job, _first_and_last(job, group), names=names, group=group, listed=True)
    if names is not None:
        return _compare_several(job, group, names=names, group=group, listed=False)
    (operator,) = group
    if operator.in_quant_pair and job.strict:
        return NetworkOutcome(())
    try:
        rows = _compare_operator(job, operator, None)
    except NotCompared as error:
        return NetworkOutcome((_empty(operator, None, error.message),), error.code)
    return NetworkOutcome(tuple(rows) or (_empty(operator, None, ""),), Code.FINE, bool(rows))


def _compare_several(
    job: CompareJob,
    chosen: Sequence[Operator],
    *,
    names: tuple[str, str] | None,
    group: Sequence[Operator],
    listed: bool,
) -> NetworkOutcome:
    """Compare those operators of a group that can be; when none can, one row says why."""
    rows: list[Row] = []
    reasons: list[str] = ["The fusion operator list is empty"] if listed and not chosen else []
    code = Code.NO_DUMP if listed and not chosen else Code.FINE
    matched = False
    for operator in chosen:
        if operator.in_quant_pair and job.strict:
            continue
        if operator.inner and not listed:
            reasons.append(f"[{operator.name}] The op is inner node for multi to multi relation.Skip the op.")
            job.warn(reasons[-1])
            continue
        try:
            found = _compare_operator(job, operator, names)
        except NotCompared as error:
            code = error.code
            reasons.append(error.message)
            # The vendor says nothing of an operator without a dump when another one of its group has one.
            found = [] if job.strict else [_empty(operator, names, error.message)]
            if code is Code.NO_DUMP:
                rows += found
                continue
        matched = True
        reasons.clear()
        rows += found or [_empty(operator, names, "")]
    if not matched and not rows:
        rows.append(_empty(group[0], names, ",".join(reasons)))
    return NetworkOutcome(tuple(rows), code, matched)


def _first_and_last(job: CompareJob, group: Sequence[Operator]) -> list[Operator]:
    """Of operators fused in L1 memory, the first to be dumped has all inputs and the last has all outputs."""
    dumped = []
    for operator in group:
        try:
            found = job.mine.find(operator.name)[-1]
        except NotCompared:
            continue
        dumped.append((found.time, operator))
    dumped.sort(key=lambda item: item[0])
    if not dumped:
        return []
    first, last = dumped[0][1], dumped[-1][1]
    return [last] if first.originals == last.originals else [first, last]


def _compare_operator(job: CompareJob, operator: Operator, names: tuple[str, str] | None) -> list[Row]:
    loaded = _load_mine(job, operator)
    if loaded.sliced:
        job.sliced.add(operator.name)
    inputs = () if is_dequantizer(operator, strict=job.strict) else loaded.inputs
    # The vendor compares no codes; here they are decoded.
    outputs = () if operator.type == "AscendQuant" and job.strict else loaded.outputs
    rows: list[Row] = []
    for tensor in (*inputs, *outputs):
        row = _compare_tensor(job, operator, tensor, names=names, loaded=loaded)
        overflow = overflows(job, operator.name, tensor) if job.overflow else row.overflow
        rows.append(replace(row, overflow=overflow))
    if loaded.damage and not job.strict:
        rows = [replace(row, reason=_joined(row.reason, f"[{operator.name}] {loaded.damage}.")) for row in rows]
    return rows


def _load_mine(job: CompareJob, operator: Operator) -> Loaded:
    output = 0 if job.mine.kind is not Kind.NPU else None
    missing = english(
        '[{name}] There is no dump file for my output operator "{name}". The type is {type}.',
        name=operator.name,
        type=operator.type,
    )
    try:
        return load_operator(job.mine.find(operator.name, output), strict=job.strict)
    except NotCompared as error:
        message = (
            missing
            if job.strict or not error.message
            else english("[{name}] {message}", name=operator.name, message=error.message)
        )
        if job.strict or operator.type not in CONSTANT_TYPES:
            job.warn(message)
        raise NotCompared(message, code=error.code) from error


def _compare_tensor(
    job: CompareJob, operator: Operator, tensor: Tensor, *, names: tuple[str, str] | None, loaded: Loaded
) -> Row:
    about = tensor.about
    name = f"{operator.name}:{about.role}:{about.index}"
    base = replace(_empty(operator, names, ""), tensor=name, mine_address=tensor.address)
    writer = writer_of(job, operator, about.index) if about.role == "input" and not job.strict else None
    if writer is not None and writer.type in CONSTANT_TYPES:
        job.constants.add(name)
        # The row says it in the vendor's words; one line for all says it on the terminal.
        return replace(base, shape=_bracketed(_safe_shape(tensor)), reason=_no_golden(operator, name))
    try:
        found = paired(job, operator, tensor)
    except NotCompared as error:
        return replace(
            base,
            shape=_bracketed(_safe_shape(tensor)),
            reason=_reason(job, operator, name, error),
            unscaled=operator.name if error.code is Code.UNSUPPORTED else "",
        )
    except (Unreadable, OSError) as error:
        reason = f"[{operator.name}] {name} cannot be read: {why_unread(error)}."
        job.warn(reason)
        return replace(base, shape=_bracketed(about.shape), reason=reason)
    release_pages(tensor.values)  # read again where they are compared as they lie in the file
    fitted = found.fitted
    values, messages = sides(job, fitted, mine=loaded.path, golden=found.where)
    told = [f"[{operator.name}] {text}" for text in (fitted.cut, found.remark) if text]
    dead, cause = _faults(job, operator, tensor, found=found, values=values)
    return replace(
        base,
        dead=dead,
        cause=cause,
        unscaled=(writer or operator).name if found.unscaled else "",
        mine_type=found.type,
        golden_type=fitted.golden.dtype.name,
        shape=_bracketed(fitted.shape),
        values=tuple(values),
        reason=",".join([*messages, *told]),
    )


def _faults(
    job: CompareJob, operator: Operator, tensor: Tensor, *, found: PairedTensor, values: Sequence[str]
) -> tuple[tuple[int, ...], FaultCause | None]:
    """Dead channels of an output, and why it is wrong where it is; the vendor's columns show neither."""
    fitted = found.fitted
    if job.strict or tensor.about.role != "output" or math.prod(fitted.shape) != fitted.mine.size:
        return (), None
    mine, golden = (side.reshape(fitted.shape) for side in (fitted.mine, fitted.golden))
    axis = found.channel_axis if found.channel_axis < len(fitted.shape) else 0
    dead = dead_channels(mine, golden, axis=axis)
    distance = dict(zip(job.algorithms, values, strict=True)).get("RelativeEuclideanDistance", "0")
    try:
        wrong = bool(dead) or not float(distance) <= farthest()
    except ValueError:
        return dead, None
    if not wrong:
        return dead, None
    coded = found.numbers != "values" or DEQUANT_NAME.search(operator.name) is not None
    with np.errstate(all="ignore"):
        if found.numbers == "codes":
            mine, golden = mine / found.step, golden / found.step
        fused: Fused = "compared" if len(operator.parts) > 1 else ""
        return dead, cause_of(mine, golden, numbers=found.numbers, coded=coded, fused=fused, axis=axis)


def sides(job: CompareJob, fitted: Fitted, *, mine: str, golden: str) -> tuple[list[str], list[str]]:
    """Run the algorithms on two vectors."""
    left, right = (_most(side, job.most) for side in (fitted.mine, fitted.golden))
    scalar = all(size == 1 for size in fitted.shape)
    return compare_values(
        ComparedTensors(GoldenPair(left, right), scalar, mine, golden), job.algorithms, warn=job.warn
    )


def overflows(job: CompareJob, op: str, tensor: Tensor) -> str:
    """Whether a float16 tensor reaches the largest number of its type."""
    if tensor.about.element_type != "FLOAT16":
        return "NaN"
    try:
        values = tensor.values
    except (Unreadable, OSError):
        return "NaN"
    if not values.size:
        return "NaN"
    with np.errstate(invalid="ignore"):
        high, low = float(values.max()), float(values.min())
    found = max(high, -low) >= _FLOAT16_MAX
    if not job.strict and not found:
        found = bool(np.isnan(high) or np.isnan(low)) and bool((np.abs(values) >= _FLOAT16_MAX).any())
    if found:
        job.warn(f"{op} operator {tensor.about.role}:{tensor.about.index} is overflow.")
    return "YES" if found else "NO"


def _reason(job: CompareJob, operator: Operator, tensor: str, error: NotCompared) -> str:
    if error.code is not Code.NO_DUMP:
        if error.code is Code.SHAPE and not job.strict:
            job.warn(error.message)
        return error.message
    message = _no_golden(operator, tensor)
    job.warn(message)
    return message


def _no_golden(operator: Operator, tensor: str) -> str:
    return f"[{operator.name}] There is no the ground truth dump file for {tensor}."


def _empty(operator: Operator, names: tuple[str, str] | None, reason: str) -> Row:
    mine, golden = names or (operator.name, ",".join(operator.originals) or "*")
    return Row(operator.index, operator.sequence, operator.type, mine, golden=golden, reason=reason)


def with_inputs_of_slices(job: CompareJob, rows: Sequence[Row]) -> list[Row]:
    """Rows in which inputs of sliced operators show what was found for the outputs that they are."""
    outputs = {row.tensor: row for row in rows if row.tensor.partition(":")[0] in job.sliced}
    found = []
    for row in rows:
        producer = outputs.get(job.producers.get(row.tensor, "")) if row.tensor in outputs else None
        if producer is not None:
            row = replace(  # noqa: PLW2901 - the same row with other values
                row,
                shape=producer.shape,
                overflow=producer.overflow,
                values=producer.values,
                reason=producer.reason,
            )
        found.append(row)
    return found


def group_names(group: Sequence[Operator]) -> tuple[str, str]:
    """All operators of a group, and all originals, each list once."""
    by_originals: dict[str, list[str]] = {}
    for operator in group:
        by_originals.setdefault(",".join(operator.originals), []).append(operator.name)
    return ",".join(name for names in by_originals.values() for name in names), ",".join(by_originals)


def _safe_shape(tensor: Tensor) -> tuple[int, ...]:
    try:
        return tensor.shape
    except Unreadable:
        return tensor.about.shape


def _bracketed(shape: Sequence[int]) -> str:
    return f"[{','.join(map(str, shape))}]"


def _joined(*parts: str) -> str:
    return ",".join(part for part in parts if part)


def _most(side: Array, most: int) -> Array:
    return side[:most] if most else side


_MISSING_SLICES = "This is a FFTS+ mode dump data, The number of files does not match the number of thread"


@dataclass(frozen=True, slots=True)
class OperatorPair:
    """An operator and its files on both sides; none on a side that lacks it.

    Attributes:
        index: Number of the operator.
        op: Its name.
        mine: Its files under test.
        golden: Its golden files.
        golden_op: Name of the golden operator, where that is another one that writes the same original tensors.
        outputs: Which outputs of both are the same then; empty where all inputs and outputs are.
    """

    index: int
    op: str
    mine: tuple[FoundFile, ...]
    golden: tuple[FoundFile, ...]
    golden_op: str = ""
    outputs: tuple[tuple[int, int], ...] = ()


def pair_operators(mine: Folder, golden: Folder, *, strict: bool) -> list[OperatorPair]:
    """Operators of two dumps by name; those of one side alone by the original tensors that they write.

    Args:
        mine: The dump under test.
        golden: The golden one.
        strict: By name alone, as the vendor does.
    """
    pairs = pair_by_name(mine, golden)
    lonely = [pair for pair in pairs if not pair.golden]
    if strict or not lonely or not any(not pair.mine for pair in pairs):
        return pairs
    written: dict[str, tuple[OperatorPair, int]] = {}
    for pair in pairs:
        for place, name in enumerate(_originals(pair.golden, mine.files.keys())):
            written[name] = (pair, place)
    found: dict[str, list[OperatorPair]] = {}
    taken: set[str] = set()
    for pair in lonely:
        owners: dict[str, OperatorPair] = {}
        for place, name in enumerate(_originals(pair.mine, golden.files.keys())):
            other, theirs = written.get(name, (None, 0))
            if other is not None:
                known = owners.get(other.op) or replace(pair, golden=other.golden, golden_op=other.op)
                owners[other.op] = replace(known, outputs=(*known.outputs, (place, theirs)))
        if owners:
            found[pair.op] = list(owners.values())
            taken |= owners.keys()
    return [each for pair in pairs if pair.mine or pair.op not in taken for each in found.get(pair.op, [pair])]


def _originals(files: Sequence[FoundFile], known: Collection[str]) -> list[str]:
    """Original tensors that the outputs of an operator are, by its headers, else by the parts of its name."""
    if not files:
        return []
    try:
        loaded = load_operator(files, strict=False)
    except NotCompared:
        return []
    name = escaped(loaded.op_name or (files[-1].name.op if files[-1].name is not None else ""))
    outputs = operator_of(name, "", loaded, names=list(known)).outputs
    # Codes of a tensor, which a fused operator writes in its place, are not the tensor.
    return [
        f"{escaped(origin.name)}:{origin.index}"
        + (f":{tensor.about.element_type}" if tensor.about.element_type in CODED_TYPES else "")
        for tensor, origin in zip(loaded.outputs, outputs, strict=True)
    ]


def pair_by_name(mine: Folder, golden: Folder) -> list[OperatorPair]:
    """All operators of both sides, those under test first, each in the order of execution."""
    found: dict[str, None] = {}
    for folder in (mine, golden):
        in_order = sorted(folder.files.items(), key=lambda item: item[1][-1].time)
        found |= dict.fromkeys(op for op, _ in in_order)
    return [
        OperatorPair(index, op, tuple(mine.files.get(op, ())), tuple(golden.files.get(op, ())))
        for index, op in enumerate(found)
    ]


def compare_pair(job: CompareJob, twin: OperatorPair) -> NetworkOutcome:
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
    if twin.outputs:
        return _same_outputs(job, twin, mine=mine, golden=golden)
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


def _same_outputs(job: CompareJob, twin: OperatorPair, *, mine: Loaded, golden: Loaded) -> NetworkOutcome:
    """Compare those outputs of two operators that are the same tensors of the original."""
    rows = []
    for left, right in twin.outputs:
        pair = mine.outputs[left], golden.outputs[right]
        reason = _difference(job, *pair)
        name = f"{twin.op}:output:{left}"
        if reason:
            rows.append(_row(twin, "NaN", tensor=name, reason=f"[{twin.op}] The {reason} for {name}."))
        else:
            rows.append(_compare(job, twin, name, tensors=pair, paths=(mine.path, golden.path)))
    return NetworkOutcome(tuple(rows), Code.FINE, True)


def _told(job: CompareJob, reasons: Sequence[str], *, mine: Loaded, golden: Loaded) -> list[str]:
    """What else there is to say of an operator that was compared in part, which the vendor keeps to itself."""
    if job.strict:
        return []
    damaged = [f"The file {side.path} is damaged: {side.damage}." for side in (mine, golden) if side.damage]
    return [reason for reason in reasons if "There is no" not in reason] + damaged


def _alone(job: CompareJob, twin: OperatorPair) -> NetworkOutcome:
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
    """Why two tensors cannot be compared; empty when they can, if need be with their formats undone."""
    try:
        left, right = mine.shape, golden.shape
    except Unreadable as error:
        return f"slices do not fit ({error.problem})"
    formats = mine.about.format, golden.about.format
    if not job.strict and (formats[0] != formats[1] or left != right):
        ways = [way_back(side) for side in (mine, golden)]
        shape = np.broadcast_to(np.uint8(0), ways[1].shape)
        left, right = ways[0].shape, _in_order(LaidOutValues(shape, ways[1].axes), ways[0].axes).shape
        if left == right and all(way.restored for way in ways):
            return ""
        return f"shape does not match ({shown(left)} vs {shown(right)})"
    if not job.restore and formats[0] != formats[1]:
        return "format does not match ({} vs {})".format(*formats)
    return f"shape does not match ({shown(left)} vs {shown(right)})" if left != right else ""


def _in_order(laid: LaidOutValues, axes: str) -> Array:
    """Values with their axes in another order, where letters tell both."""
    found = relayout(laid, axes)
    return laid.array if found is None else found


def _compare(
    job: CompareJob, twin: OperatorPair, name: str, *, tensors: tuple[Tensor, Tensor], paths: tuple[str, str]
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
        undone = job.restore or mine.about.format != golden.about.format or mine.shape != golden.shape
        left, right = (side.values for side in tensors)
        if undone:
            plain = restore(left, way_back(mine))
            left, right = plain.array, _in_order(restore(right, way_back(golden)), plain.axes)
    except (Unreadable, OSError) as error:
        reason = f"[{twin.op}] {name} cannot be read: {why_unread(error)}."
        job.warn(reason)
        return replace(row, reason=reason)
    if left.size != right.size:
        reason = f"[{twin.op}] The number of elements does not match ({left.size} vs {right.size}) for {name}."
        job.warn(reason)
        return replace(row, reason=reason)
    if undone and not job.restore:
        row = replace(row, shape=_bracketed(left.shape))
    fitted = Fitted(left.reshape(-1), right.reshape(-1), mine.shape)
    values, messages = sides(job, fitted, mine=paths[0], golden=paths[1])
    return replace(row, values=tuple(values), reason=",".join(messages))


def _row(twin: OperatorPair, op_type: str, *, tensor: str = "NaN", reason: str = "") -> Row:
    golden = twin.golden_op or twin.op
    return Row(twin.index, 0, op_type, twin.op, golden=golden, tensor=tensor, reason=reason)


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
        raise Refused(
            "My output shape {shape} in '{mine}' does not match the ground truth shape {shape2} in '{golden}'.",
            code=Code.SHAPE,
            fix=english("give arrays of one shape, or use 'roundoff compare', which aligns"),
            shape=left.shape,
            mine=mine,
            shape2=right.shape,
            golden=golden,
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
        what = english("{path} holds {count} outputs.", path=path, count=len(outputs))
        raise Refused(what, code=Code.DATA, fix=english("give folders and -op, or convert it to .npy first"))
    return source.read(outputs[0], source.samples[0])


def _read(path: Path) -> Array:
    regular_file(path, what=english("The file"))
    try:
        if path.suffix == ".txt":
            return np.loadtxt(path, dtype=np.float32)
        if path.suffix != ".npy":
            return _of_dump(path)
        return as_values(map_npy(path))
    except Unreadable as error:
        raise Refused(
            "{path} cannot be read: {problem}.", code=Code.DATA, fix=error.fix, path=path, problem=error.problem
        ) from error
    except ValueError as error:
        what = english("{path} cannot be read: {error}.", path=path, error=error)
        raise Refused(what, code=Code.DATA, fix=english("give a .npy file, or numbers as text")) from error
