"""Comparing a network: every tensor of an offline model with its golden counterpart, group by group."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from roundoff.core.array_files import Unreadable
from roundoff.core.tensors import Array
from roundoff.measure.blocks import release_pages
from roundoff.vendors.ascend.algorithms import ComparedTensors, GoldenPair, compare_values
from roundoff.vendors.ascend.counterparts import (
    CompareJob,
    counterpart,
    decoded_counterpart,
    find_golden,
    golden_of,
)
from roundoff.vendors.ascend.errors import Code, NotCompared
from roundoff.vendors.ascend.folders import Kind, Loaded, Tensor, load_operator
from roundoff.vendors.ascend.layouts import Fitted
from roundoff.vendors.ascend.quantized import decoded, holds_codes, is_dequantizer, may_hold_codes
from roundoff.vendors.ascend.rows import Row
from roundoff.vendors.ascend.rules import Operator, OperatorOrigin, Relation, relation_of

__all__ = ["NetworkOutcome", "compare_group", "group_names", "overflows", "sides", "with_inputs_of_slices"]

_FLOAT16_MAX = 65504
_IN_PAIR = "runs between a quantizer and its dequantizer: it writes sums of codes, which no golden tensor has"


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
    inputs = () if is_dequantizer(operator) else loaded.inputs
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
    missing = (
        f'[{operator.name}] There is no dump file for my output operator "{operator.name}". '
        f"The type is {operator.type}."
    )
    try:
        return load_operator(job.mine.find(operator.name, output), strict=job.strict)
    except NotCompared as error:
        message = missing if job.strict or not error.message else f"[{operator.name}] {error.message}"
        job.warn(message)
        raise NotCompared(message, code=error.code) from error


def _compare_tensor(
    job: CompareJob, operator: Operator, tensor: Tensor, *, names: tuple[str, str] | None, loaded: Loaded
) -> Row:
    about = tensor.about
    name = f"{operator.name}:{about.role}:{about.index}"
    base = replace(_empty(operator, names, ""), tensor=name, mine_address=tensor.address)
    try:
        origin, golden, where = _golden(job, operator, tensor)
        fitted = golden_of(job, operator, tensor, golden=golden, origin=origin)
        kind, remark = fitted.mine.dtype.name, ""
        if not job.strict and job.mine.kind is Kind.NPU and holds_codes(about.element_type, fitted.golden):
            fitted, remark = decoded(fitted)
    except NotCompared as error:
        return replace(base, shape=_bracketed(_safe_shape(tensor)), reason=_reason(job, operator, name, error))
    except (Unreadable, OSError) as error:
        problem = error.problem if isinstance(error, Unreadable) else error.strerror
        reason = f"[{operator.name}] {name} cannot be read: {problem}."
        job.warn(reason)
        return replace(base, shape=_bracketed(about.shape), reason=reason)
    release_pages(tensor.values)  # read again where they are compared as they lie in the file
    values, messages = sides(job, fitted, mine=loaded.path, golden=where)
    told = [f"[{operator.name}] {text}" for text in (fitted.cut, remark) if text]
    return replace(
        base,
        mine_type=kind,
        golden_type=fitted.golden.dtype.name,
        shape=_bracketed(fitted.shape),
        values=tuple(values),
        reason=",".join([*messages, *told]),
    )


def _golden(job: CompareJob, operator: Operator, tensor: Tensor) -> tuple[OperatorOrigin, Tensor, str]:
    """The golden tensor, what the rule says of it, and its file."""
    about = tensor.about
    is_input = about.role == "input"
    codes = may_hold_codes(about.element_type) and not job.strict and job.golden.kind is not Kind.NPU
    asking = replace(job, warn=lambda text: None) if codes else job
    try:
        origin = counterpart(asking, operator, about.index, is_input=is_input)
        golden, where = find_golden(asking, origin, operator)
        if operator.in_quant_pair and about.element_type == "INT32" and golden.dtype.startswith("float"):
            raise NotCompared(f"[{operator.name}] This op {_IN_PAIR}.", code=Code.UNSUPPORTED)
        return origin, golden, where
    except NotCompared as error:
        if not codes or error.code is not Code.NO_DUMP:
            raise
    origin = decoded_counterpart(job, operator, about.index, is_input=is_input)
    return origin, *find_golden(job, origin, operator)


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
        return error.message
    message = f"[{operator.name}] There is no the ground truth dump file for {tensor}."
    job.warn(message)
    return message


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
