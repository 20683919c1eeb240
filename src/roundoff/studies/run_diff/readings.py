"""The scores that runs of every kind hold, in one form: decibels, higher is better, sample by sample."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from roundoff.core.document import RunDocument
from roundoff.errors import BadInput
from roundoff.measure.metrics import Status, get_metric, ratio_db
from roundoff.messages.message import english
from roundoff.studies.run_diff.result import CEILING_DB, RunKind

if TYPE_CHECKING:
    from roundoff.diagnosis.result import Diagnosis
    from roundoff.studies.accumulate.result import Accumulation
    from roundoff.studies.compare.result import Comparison
    from roundoff.studies.layers.result import LayerReport, LayerScore
    from roundoff.studies.sensitivity.result import SensitivityReport, SensitivityRow

_T = TypeVar("_T")

FINE, BROKEN, UNSCORED = 0, 1, 2
"""How bad a status is: a score of everything, one of the finite values alone, none."""

# Below this nothing is left of a tensor.
_BOTTOM_DB = -20.0
# Of scores in units of the tensor, for which there is neither.
_WIDEST_DB = 300.0


@dataclass(frozen=True, slots=True)
class RunScore:
    """One score of one tensor in one run.

    Attributes:
        tensor: What is scored; for a ranking the name of the subject.
        measure: Which score.
        node: The node that computes it.
        op_type: Its operation.
        shape: Its shape; empty when unknown.
        order: Position in execution order; None when unknown.
        output: Whether it is an output of the network.
        badness: How bad its status is.
        status: The same in words.
        value: Decibels over all samples; None without a score.
        values: Decibels by sample, NaN where there are none; empty when they are not known.
        names: Those samples.
    """

    tensor: str
    measure: str
    node: str
    op_type: str
    shape: tuple[int, ...]
    order: int | None
    output: bool
    badness: int
    status: str
    value: float | None
    values: tuple[float, ...] = ()
    names: tuple[str, ...] = ()


def run_kind(document: RunDocument) -> RunKind | None:
    """What kind of run it is; None for one that has no scores of nodes."""
    return next((kind for kind in _READERS if getattr(document, kind) is not None), None)


def readings_of(document: RunDocument, kind: RunKind) -> tuple[RunScore, ...]:
    """All scores of a run, in execution order where that is known."""
    found = tuple(_READERS[kind](document))
    return tuple(sorted(found, key=lambda each: math.inf if each.order is None else each.order))


def sample_names(document: RunDocument, kind: RunKind) -> tuple[str, ...] | None:
    """The samples of a run; None where it does not name them."""
    if kind == "diagnosis":
        return _present(document.diagnosis).sample_names or None
    names: tuple[str, ...] | int = getattr(document, kind).samples
    return None if isinstance(names, int) else names


def limited(decibels: float, *, relative: bool = True) -> float:
    """Decibels within what means something; NaN stays."""
    if math.isnan(decibels):
        return decibels
    low, high = (_BOTTOM_DB, CEILING_DB) if relative else (-_WIDEST_DB, _WIDEST_DB)
    return min(max(decibels, low), high)


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else limited(value)


def _badness(status: Status) -> int:
    return {"ok": FINE, "degenerate": FINE, "nonfinite": BROKEN}.get(status, UNSCORED)


def _compared(document: RunDocument) -> Iterator[RunScore]:
    found: Comparison = _present(document.comparison)
    outputs = () if document.network is None else document.network.outputs
    for row in found.rows:
        kept = tuple(map(limited, row.sample_sqnr_db))
        yield RunScore(
            row.reference, "compared", row.node, row.op_type, row.shapes[0],
            row.order if found.ordered else None, row.reference in outputs,
            _badness(row.score.status), row.score.detail or row.score.status,
            _known(row.score.values.get("sqnr_db")), kept, found.samples[: len(kept)],
        )  # fmt: skip


def _layers(document: RunDocument) -> Iterator[RunScore]:
    report: LayerReport = _present(document.layers)
    for row in report.rows:
        scores: tuple[tuple[str, LayerScore | None], ...] = (
            ("local", row.local),
            ("accumulated", row.accumulated),
        )
        for measure, score in scores:
            if score is None:
                continue
            kept = tuple(map(limited, score.sample_sqnr_db))
            yield RunScore(
                row.tensor, measure, row.node, row.op_type, row.shape, row.order, row.output,
                _badness(score.status), str(score.detail) or score.status, _known(score.sqnr_db),
                kept, report.samples[: len(kept)],
            )  # fmt: skip


def _accumulation(document: RunDocument) -> Iterator[RunScore]:
    found: Accumulation = _present(document.accumulation)
    line = found.base_line
    for place in found.nodes:
        value = line.sqnr_db[place.order]
        of_samples = line.sample_sqnr_db[place.order] if line.sample_sqnr_db else ()
        kept = tuple(map(limited, of_samples))
        broken = value == -math.inf
        yield RunScore(
            place.tensor, "accumulated", place.node, place.op_type, (), place.order, place.output,
            UNSCORED if value is None else (BROKEN if broken else FINE), "values that are not finite" * broken,
            _known(value), kept, found.samples[: len(kept)],
        )  # fmt: skip


def _sensitivity(document: RunDocument) -> Iterator[RunScore]:
    report: SensitivityReport = _present(document.sensitivity)
    places = {} if document.network is None else {node.name: at for at, node in enumerate(document.network.nodes)}
    for kind, rows in report.rankings.items():
        measure = f"{kind} {'alone' if report.mode == 'alone' else 'left out'}"
        for row in rows:
            values = tuple(_mean_decibels(line, report.metrics[0]) for line in row.per_sample)
            score = row.scores.get(report.metrics[0], math.nan)
            value = _decibels(report.metrics[0], score)
            yield RunScore(
                row.name, measure, row.node, row.op_type, (), places.get(row.node), output=False,
                badness=UNSCORED if math.isnan(value) else FINE, status="no score" * math.isnan(value),
                value=None if math.isnan(value) else value, values=values, names=_names(row, report),
            )  # fmt: skip


def _names(row: "SensitivityRow", report: "SensitivityReport") -> tuple[str, ...]:
    """The samples of a row; where it was measured on some only, those are the same in runs on as many."""
    if len(row.per_sample) == len(report.samples):
        return report.samples
    return tuple(f"{at} of {len(row.per_sample)}" for at in range(len(row.per_sample)))


def _diagnosis(document: RunDocument) -> Iterator[RunScore]:
    found: Diagnosis = _present(document.diagnosis)
    for at, measure in enumerate(found.measures):
        if measure.unit == "dB" and not math.isnan(measure.before):
            value, kept = limited(measure.before), () if at else tuple(map(limited, found.sample_sqnr_db))
            yield RunScore(
                str(measure.what), "diagnosed", "", "", (), None, True, FINE, "", value, kept,
                found.sample_names[: len(kept)],
            )  # fmt: skip


def _mean_decibels(scores: Sequence[float], metric: str) -> float:
    known = [value for score in scores if not math.isnan(value := _decibels(metric, score))]
    return sum(known) / len(known) if known else math.nan


def _decibels(name: str, score: float) -> float:
    """A score of any metric as decibels: how far it is from perfect."""
    if name.endswith("_db"):
        return limited(score)
    metric = get_metric(name)
    if metric.perfect is None or math.isnan(score):
        return math.nan
    distance = abs(score - metric.perfect)
    energy = distance if metric.quadratic else distance**2
    return limited(ratio_db(1.0, energy), relative=metric.unit != "value")


def _present(found: _T | None) -> _T:
    if found is None:
        raise BadInput(
            english("The run has no scores of that kind."), fix=english("give two runs of the same command")
        )
    return found


_READERS: dict[RunKind, Callable[[RunDocument], Iterator[RunScore]]] = {
    "layers": _layers,
    "comparison": _compared,
    "sensitivity": _sensitivity,
    "accumulation": _accumulation,
    "diagnosis": _diagnosis,
}


# Which node of one run is which of another: by name, else by operation, shape and place.

_Signature = tuple[str, tuple[int, ...]]


class Matched(NamedTuple):
    """What belongs together.

    Attributes:
        pairs: Scores that both runs have, in the order of the second.
        only_before: Tensors that only the first run has.
        only_after: Tensors that only the second has.
        renamed: Names in the first and in the second run.
    """

    pairs: tuple[tuple[RunScore, RunScore], ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...]


def match_readings(before: Sequence[RunScore], after: Sequence[RunScore]) -> Matched:
    """Pair the scores of two runs; names that both have decide, then what lies between them."""
    left, right = _signatures(before), _signatures(after)
    renamed = _renamed(left, right)
    old_names = {new: old for old, new in renamed}
    known = {(each.tensor, each.measure): each for each in before}
    pairs = []
    for each in after:
        name = each.tensor if each.tensor in left else old_names.get(each.tensor, "")
        other = known.get((name, each.measure))
        if other is not None:
            pairs.append((other, each))
    gone = {old for old, _ in renamed}
    return Matched(
        pairs=tuple(pairs),
        only_before=tuple(name for name in left if name not in right and name not in gone),
        only_after=tuple(name for name in right if name not in left and name not in old_names),
        renamed=renamed,
    )


def _signatures(readings: Sequence[RunScore]) -> dict[str, _Signature]:
    """What each tensor looks like, in their order."""
    return {each.tensor: (each.op_type, each.shape) for each in readings}


def _renamed(left: dict[str, _Signature], right: dict[str, _Signature]) -> tuple[tuple[str, str], ...]:
    """Tensors between the same neighbours that look alike, one after the other."""
    ours, theirs = _stretches(left, right), _stretches(right, left)
    found: list[tuple[str, str]] = []
    for anchor, old in ours.items():
        new = theirs.get(anchor, [])
        blocks = SequenceMatcher(
            None, [left[name] for name in old], [right[name] for name in new], autojunk=False
        ).get_matching_blocks()
        for block in blocks:
            # Without an operation there is nothing to know a tensor by.
            found += [
                (old[block.a + at], new[block.b + at]) for at in range(block.size) if left[old[block.a + at]][0]
            ]
    return tuple(found)


def _stretches(own: dict[str, _Signature], other: dict[str, _Signature]) -> dict[str | None, list[str]]:
    """Tensors that the other run does not name, by the last one before them that it does."""
    anchor: str | None = None
    found: dict[str | None, list[str]] = {}
    for name in own:
        if name in other:
            anchor = name
        else:
            found.setdefault(anchor, []).append(name)
    return found
