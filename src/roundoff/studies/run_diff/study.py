"""Two runs side by side: what got better, what got worse, where it starts, and whether chance explains it."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from roundoff.core.document import RunDocument
from roundoff.core.tensors import Array, NodeInfo, Topology
from roundoff.errors import BadInput
from roundoff.measure.inference import false_discoveries, paired_probability, unpaired_probability
from roundoff.measure.metrics import Status, get_metric, ratio_db
from roundoff.messages.message import Message, english, joined, message
from roundoff.pages.cards import chip_of
from roundoff.studies.run_diff.result import (
    CEILING_DB,
    Change,
    DiffKind,
    Pairing,
    RowDiff,
    RunDiff,
    RunInputChange,
    RunKind,
)

if TYPE_CHECKING:
    from roundoff.diagnosis.result import Diagnosis, Finding
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


# Whether the change of one score can be chance.


@dataclass(frozen=True, slots=True)
class Tested:
    """A score in both runs.

    Attributes:
        before: In decibels.
        after: In the other run.
        samples: Samples, or pairs of them, that were tested; 0 when none could be.
        probability: Of a change like this by chance, not yet corrected for other rows; None when not tested.
        identical: Whether every sample has the very same score, so that there is nothing to test.
    """

    before: float | None
    after: float | None
    samples: int = 0
    probability: float | None = None
    identical: bool = False

    @property
    def change_db(self) -> float | None:
        """By how much it is better."""
        return None if self.before is None or self.after is None else self.after - self.before


def compare_scores(before: RunScore, after: RunScore, pairing: Pairing) -> Tested:
    """Compare one score of two runs, sample by sample where that is possible."""
    totals = Tested(before.value, after.value, identical=before.value == after.value and before.value is not None)
    if pairing == "none":
        return totals
    left, right = _numbers(before, after) if pairing == "paired" else (_array(before), _array(after))
    if pairing == "paired":
        known = ~(np.isnan(left) | np.isnan(right))
        left, right = left[known], right[known]
        probability = paired_probability(left, right)
    else:
        left, right = left[~np.isnan(left)], right[~np.isnan(right)]
        probability = unpaired_probability(left, right)
    if not left.size or not right.size:
        return totals
    samples = 0 if probability is None else int(min(left.size, right.size))
    identical = left.size == right.size and bool((left == right).all())
    return Tested(float(left.mean()), float(right.mean()), samples, probability, identical)


def _array(reading: RunScore) -> Array:
    return np.asarray(reading.values, dtype=np.float64)


def _numbers(before: RunScore, after: RunScore) -> tuple[Array, Array]:
    """Scores of the samples that both have, in the same order."""
    if before.names == after.names:
        return _array(before), _array(after)
    ours = dict(zip(before.names, before.values, strict=True))
    theirs = dict(zip(after.names, after.values, strict=True))
    common = [name for name in ours if name in theirs]
    return (
        np.asarray([ours[name] for name in common], dtype=np.float64),
        np.asarray([theirs[name] for name in common], dtype=np.float64),
    )


# What was not the same in two runs beside their results, and whether they scored the same samples.

_SHOWN_HASH = 8
# Where results go says nothing of what was run.
_OUTPUT_FLAGS = frozenset({"--json", "--force"})
_OUTPUT_OPTIONS = frozenset(
    {
        "-o",
        "--output",
        "--csv",
        "--html",
        "--plot",
        "--junit",
        "--top",
        "--rows",
        "--sort",
        "--threads",
        "--max-memory",
        "--dask",
    }
)


def changed_conditions(before: RunDocument, after: RunDocument) -> tuple[RunInputChange, ...]:
    """Inputs, options and surroundings that differ."""
    return (*_inputs(before, after), *_options(before, after), *_surroundings(before, after))


def same_samples(before: RunDocument, after: RunDocument, kind: RunKind) -> bool:
    """Whether both runs scored the same samples, or one some of the other's, as far as their files tell."""
    names = sample_names(before, kind), sample_names(after, kind)
    if names[0] is None or names[1] is None:
        return False
    for role in ("data", "reference"):
        given = _hashes(before, role), _hashes(after, role)
        if given[0] or given[1]:
            return given[0] == given[1] and bool(set(names[0]) & set(names[1]))
    return names[0] == names[1]


def _hashes(document: RunDocument, role: str) -> list[str]:
    return [each.sha256 for each in document.inputs if each.role == role]


def _inputs(before: RunDocument, after: RunDocument) -> Iterator[RunInputChange]:
    chips = chip_of(before), chip_of(after)
    if chips[0] != chips[1]:
        yield RunInputChange("target", *chips)
    for role in dict.fromkeys(each.role for each in (*before.inputs, *after.inputs)):
        named = role == "target" and chips[0] != chips[1]
        if _hashes(before, role) != _hashes(after, role) and not named:
            yield RunInputChange(role, _files(before, role), _files(after, role))


def _files(document: RunDocument, role: str) -> str:
    files = (each for each in document.inputs if each.role == role)
    return ", ".join(f"{each.path} ({each.sha256[:_SHOWN_HASH]})" for each in files)


def _options(before: RunDocument, after: RunDocument) -> Iterator[RunInputChange]:
    ours, theirs = _asked(before), _asked(after)
    lost = [word for word in ours if word not in theirs]
    new = [word for word in theirs if word not in ours]
    if lost or new:
        yield RunInputChange("options", " ".join(lost), " ".join(new))


def _asked(document: RunDocument) -> list[str]:
    """The options of a command with their values, but for files, which are told by their content."""
    paths = {each.path for each in document.inputs}
    found: list[str] = []
    words = iter(document.command[2:])
    for word in words:
        if word in _OUTPUT_OPTIONS or word == "--target":
            next(words, None)
        elif word.startswith("-") and word.partition("=")[0] not in {*_OUTPUT_OPTIONS, *_OUTPUT_FLAGS, "--target"}:
            found.append(word)
        elif not word.startswith("-") and found and not _names_file(word, paths):
            found[-1] += f" {word}"
    return found


def _names_file(word: str, paths: set[str]) -> bool:
    return word in paths or word.partition("=")[2] in paths


def _surroundings(before: RunDocument, after: RunDocument) -> Iterator[RunInputChange]:
    ours, theirs = before.environment, after.environment
    packages = dict.fromkeys((*ours.packages, *theirs.packages))
    told: Sequence[tuple[str, str, str]] = (
        ("roundoff", ours.roundoff, theirs.roundoff),
        ("python", ours.python, theirs.python),
        *((name, ours.packages.get(name, ""), theirs.packages.get(name, "")) for name in packages),
        ("host", ours.host, theirs.host),
        ("arithmetic", str(ours.arithmetic), str(theirs.arithmetic)),
    )
    for what, old, new in told:
        if old != new:
            yield RunInputChange(what, old, new, environment=True)


FLOOR_DB = 0.5
"""A smaller change is none: 0.5 dB is an eighth of the error's energy."""

LEVEL = 0.05
"""Probability up to which chance is excluded, over all rows of two runs together."""

# A change this large, or this improbable taken alone, is told of even where chance is not excluded.
_LARGE_DB, _SUSPICIOUS = 3.0, 0.01
# Noise up to so many times that of what a node reads is taken for that; accumulated noise up to so many times the
# local one for the node's own.
_EXPLAINED, _MOSTLY = 4.0, 2.0
_COMMANDS = english("compare, layers, sensitivity, accumulate or diagnose")


def diff_runs(
    before: tuple[str, RunDocument],
    after: tuple[str, RunDocument],
    *,
    floor_db: float = FLOOR_DB,
    paired: bool = False,
) -> RunDiff:
    """Compare two runs.

    Args:
        before: Path and document of the first run.
        after: Path and document of the second.
        floor_db: Changes smaller than this are none.
        paired: Take samples of the same name for the same although their files differ.

    Raises:
        BadInput: They are not runs of one kind, or have no score in common.
    """
    old, new = before[1], after[1]
    kind = _common_kind(before, after)
    ours, theirs = readings_of(old, kind), readings_of(new, kind)
    matched = match_readings(ours, theirs)
    if not matched.pairs and kind != "diagnosis":
        what = english(
            "{before} and {after} have no node in common, neither by name nor by operation and shape.",
            before=before[0],
            after=after[0],
        )
        raise BadInput(what, fix=english("give two runs of the same network"))
    same = paired or same_samples(old, new, kind)
    pairing = _pairing(matched, same=same)
    accused = () if new.comparison is None else new.comparison.verdict.introduces
    rows = _with_starts(tuple(_rows(matched, pairing, floor_db)), new.network, accused)
    worse = [row for row in rows if row.change == "worse" and row.order is not None]
    found = RunDiff(
        before=before[0],
        after=after[0],
        compared=kind,
        kind=_verdict(rows),
        rows=rows,
        first=worse[0].tensor if worse else None,
        only_before=matched.only_before,
        only_after=matched.only_after,
        renamed=matched.renamed,
        inputs=changed_conditions(old, new),
        pairing=pairing,
        samples=(_sample_count(old, kind), _sample_count(new, kind)),
        floor_db=floor_db,
        level=LEVEL,
        common=_common(old, new, kind, same=same),
    )
    found = replace(found, notes=tuple(_notes(found)))
    return _with_findings(found, old.diagnosis, new.diagnosis)


def _common_kind(before: tuple[str, RunDocument], after: tuple[str, RunDocument]) -> RunKind:
    kinds = [run_kind(document) for _, document in (before, after)]
    for (path, document), kind in zip((before, after), kinds, strict=True):
        if kind is None:
            what = english(
                "{path} is a run of '{command}', which scores no nodes.",
                path=path,
                command=" ".join(document.command[:2]),
            )
            raise BadInput(what, fix=english("give runs of {commands}", commands=_COMMANDS))
    if kinds[0] is None or kinds[0] != kinds[1]:
        names = [" ".join(document.command[:2]) for _, document in (before, after)]
        what = english(
            "{before} is a run of '{names}', {after} one of '{names2}'.",
            before=before[0],
            names=names[0],
            after=after[0],
            names2=names[1],
        )
        raise BadInput(what, fix=english("give two runs of the same command"))
    return kinds[0]


def _sample_count(document: RunDocument, kind: RunKind) -> int:
    names = sample_names(document, kind)
    return getattr(document, kind).samples if names is None else len(names)


def _common(before: RunDocument, after: RunDocument, kind: RunKind, *, same: bool) -> int | None:
    """How many samples both runs scored; None where one does not name them."""
    ours, theirs = sample_names(before, kind), sample_names(after, kind)
    if ours is None or theirs is None:
        return None
    return len(set(ours) & set(theirs)) if same else 0


def _pairing(matched: Matched, *, same: bool) -> Pairing:
    if not any(old.values and new.values for old, new in matched.pairs):
        return "none"
    return "paired" if same else "unpaired"


def _rows(matched: Matched, pairing: Pairing, floor_db: float) -> Iterator[RowDiff]:
    results = [compare_scores(old, new, pairing) for old, new in matched.pairs]
    # What is the same bit for bit cannot be a false alarm, and is no test.
    tests = [at for at, each in enumerate(results) if each.probability is not None and not each.identical]
    corrected = false_discoveries([results[at].probability or 0.0 for at in tests])
    losses = false_discoveries([_one_sided(results[at]) for at in tests])
    chances = dict(zip(tests, zip(corrected, losses, strict=True), strict=True))
    for at, ((old, new), tested) in enumerate(zip(matched.pairs, results, strict=True)):
        yield _row(old, new, tested, chances=chances.get(at, (None, None)), floor_db=floor_db)


def _one_sided(tested: Tested) -> float:
    """Probability of so large a loss by chance."""
    half = (tested.probability or 0.0) / 2
    return half if (tested.change_db or 0.0) < 0 else 1 - half


def _row(
    old: RunScore,
    new: RunScore,
    tested: Tested,
    *,
    chances: tuple[float | None, float | None],
    floor_db: float,
) -> RowDiff:
    change, detail = _change(tested, chances[0], floor_db), ""
    if old.badness != new.badness:
        change = "worse" if new.badness > old.badness else "better"
        status = new.status if new.badness != FINE else f"no longer: {old.status}"
        detail = status or "its score"
    return RowDiff(
        order=new.order,
        node=new.node,
        op_type=new.op_type,
        tensor=new.tensor,
        renamed_from="" if old.tensor == new.tensor else old.tensor,
        measure=new.measure,
        output=new.output,
        before=tested.before,
        after=tested.after,
        change_db=tested.change_db,
        samples=tested.samples,
        probability=chances[0],
        loss_probability=chances[1],
        change=change,
        detail=detail,
        pooled=None
        if old.value is None or new.value is None or not (new.output and new.values)
        else (old.value, new.value),
    )


def _change(tested: Tested, corrected: float | None, floor_db: float) -> Change:
    difference = tested.change_db
    if difference is None or tested.identical or abs(difference) < floor_db:
        return "same"
    if corrected is None or tested.probability is None:
        return "untested"
    if corrected <= LEVEL:
        return "better" if difference > 0 else "worse"
    suspicious = tested.probability <= _SUSPICIOUS or abs(difference) >= _LARGE_DB
    return "unclear" if suspicious else "same"


def _with_starts(
    rows: Sequence[RowDiff], network: Topology | None, accused: Collection[str] = ()
) -> tuple[RowDiff, ...]:
    """Mark the worse rows that are worse by themselves.

    Args:
        rows: All rows.
        network: The network of the second run; None when unknown.
        accused: Tensors that introduce an error, as the second run found.
    """
    worse = tuple(row for row in rows if row.change == "worse")
    alone, local = _alone(rows, network, accused), _new_noise(worse, "local")

    def starts(row: RowDiff) -> bool:
        if row.change != "worse" or row.tensor not in alone:
            return False
        # What accumulates at a node is its own where that is most of it.
        known = local.get(row.tensor)
        return row.measure == "local" or known is None or _added_noise(row) <= _MOSTLY * known

    return tuple(replace(row, starts=starts(row)) for row in rows)


def _new_noise(worse: Sequence[RowDiff], measure: str) -> dict[str, float]:
    return {row.tensor: _added_noise(row) for row in worse if row.measure == measure}


def _alone(rows: Sequence[RowDiff], network: Topology | None, accused: Collection[str]) -> set[str]:
    worse = [row for row in rows if row.change == "worse"]
    names = {row.tensor for row in worse}
    measures = {row.measure for row in worse}
    if not measures & {"local", "accumulated", "compared"}:
        # In a ranking each subject stands for itself.
        return names
    if network is None:
        return {row.tensor for row in worse if row.order is not None and row.order == worse[0].order}
    # What accumulates may be amplified, so that its energy alone accuses nobody.
    own = _unexplained(rows, "local", network) | (_unexplained(rows, "compared", network) & set(accused))
    reached = _reached(names, network)
    return own | {name for name in names - _new_noise(worse, "local").keys() if name not in reached}


def _unexplained(rows: Sequence[RowDiff], measure: str, network: Topology) -> set[str]:
    """Tensors that lost more than what they read can explain."""
    # A node alone is fed float tensors, but still reads what the quantizers of its inputs leave.
    added = _new_noise([row for row in rows if row.change == "worse"], measure)
    scored = {row.tensor for row in rows if row.measure == measure}
    producers = network.producers()

    def read(tensor: str) -> float:
        return sum(added.get(each, 0.0) for each in _read_scored(tensor, producers, scored))

    return {name for name, noise in added.items() if noise > _EXPLAINED * read(name)}


def _read_scored(tensor: str, producers: Mapping[str, NodeInfo], scored: set[str]) -> set[str]:
    """The nearest tensors before one that have a score; others within a unit have none."""
    found, seen = set[str](), set[str]()
    waiting = [tensor]
    while waiting:
        node = producers.get(waiting.pop())
        for name in () if node is None else node.inputs:
            if name in scored:
                found.add(name)
            elif name not in seen:
                seen.add(name)
                waiting.append(name)
    return found


def _added_noise(row: RowDiff) -> float:
    """Energy of the noise that came with a change, by that of the signal; without bound where a score was lost."""
    if row.before is None or row.after is None:
        return math.inf
    return max(0.0, 10 ** (-row.after / 10) - 10 ** (-row.before / 10))


def _reached(worse: set[str], network: Topology) -> set[str]:
    """Tensors that are computed from a worse one."""
    reached: set[str] = set()
    for node in network.nodes:
        if any(name in worse or name in reached for name in node.inputs):
            reached.update(node.outputs)
    return reached


def _verdict(rows: Sequence[RowDiff]) -> DiffKind:
    changes = {row.change for row in rows}
    if {"better", "worse"} <= changes:
        return "mixed"
    if "worse" in changes:
        return "worse"
    if "better" in changes:
        return "better"
    if "unclear" in changes:
        return "unclear"
    return "untested" if "untested" in changes else "same"


def _notes(found: RunDiff) -> Iterator[Message]:
    if found.pairing == "none":
        yield message(f"run_diff.no_{'diagnosed' if found.compared == 'diagnosis' else 'sample'}_scores")
    elif found.pairing == "unpaired":
        yield message("run_diff.two_draws")
    elif max((row.samples for row in found.rows), default=0) == 0 and found.kind != "same":
        yield message("run_diff.one_sample")
    if found.pairing != "none" and any(row.samples for row in found.rows):
        key = "run_diff.paired_test" if found.pairing == "paired" else "run_diff.welch_test"
        test = message(key, level=f"{100 * found.level:g}")
        yield joined((test, message("run_diff.floor", floor=f"{found.floor_db:g}")))


def _with_findings(found: RunDiff, old: "Diagnosis | None", new: "Diagnosis | None") -> RunDiff:
    """Findings that only one of two diagnoses has, and verdicts that differ."""
    if old is None or new is None:
        return found
    ours, theirs = (dict.fromkeys(map(_finding, each.findings)) for each in (old, new))
    verdicts = (message("run_diff.verdict_was", before=old.kind, after=new.kind),) if old.kind != new.kind else ()
    return replace(
        found,
        only_before=tuple(name for name in ours if name not in theirs),
        only_after=tuple(name for name in theirs if name not in ours),
        notes=(*verdicts, *found.notes),
        kind=_of_findings(found, old, new),
    )


def _of_findings(found: RunDiff, old: "Diagnosis", new: "Diagnosis") -> DiffKind:
    ours, theirs = ({_finding(each) for each in side.accused} for side in (old, new))
    if ours == theirs:
        return found.kind
    if ours - theirs and theirs - ours:
        return "mixed"
    return "better" if ours - theirs else "worse"


def _finding(finding: "Finding") -> str:
    where = ", ".join((finding.nodes or finding.tensors)[:3])
    proven = "" if finding.proven else " (suspected)"
    return f"{finding.cause} at {where}{proven}" if where else f"{finding.cause}{proven}"
