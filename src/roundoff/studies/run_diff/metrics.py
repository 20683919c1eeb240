"""A gate on the user's metric: what a run, or a file of scores from elsewhere, may lose against its baseline."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from roundoff.core.coverage import MetricScores
from roundoff.core.document import RunDocument
from roundoff.core.files import read_small
from roundoff.core.untrusted import parse_csv
from roundoff.errors import BadInput
from roundoff.measure.inference import unpaired_interval, unpaired_probability
from roundoff.measure.verdicts import PairedChange, paired_change
from roundoff.messages.message import english
from roundoff.studies.run_diff.result import GateMetric

# A metric may lose this part of a baseline between 0 and 1, or of its value, where nobody says otherwise.
_USUAL_LOSS = 0.01
# What sums of scores may differ by when they should be equal.
_ROUNDING = 1e-9
_SAMPLE = "sample"
_BUDGET_FIX = english("write a metric and what it may lose, as 'top-1 accuracy: -0.5%' or 'mAP: -0.3'")
_CSV_FIX = english("write a header 'sample,METRIC,...', then a line for each sample with its name and numbers")


@dataclass(frozen=True, slots=True)
class MetricBudget:
    """What a metric may lose.

    Attributes:
        name: The metric.
        loss: The loss, not negative.
        percent: Whether it is in per cent: points of a share between 0 and 1, a part of any other metric.
    """

    name: str
    loss: float
    percent: bool = False

    def allowed(self, baseline: float) -> float:
        """The loss in the unit of the metric."""
        if not self.percent:
            return self.loss
        return self.loss / 100 * (1.0 if 0 <= baseline <= 1 else abs(baseline))


def metric_budget(text: str) -> MetricBudget:
    """Read ``top-1 accuracy: -0.5%``; the sign may be left out.

    Raises:
        BadInput: It says something else.
    """
    name, _, given = text.rpartition(":")
    plain = given.strip().removesuffix("%").strip()
    try:
        loss = abs(float(plain))
    except ValueError:
        loss = math.nan
    if not name.strip() or not math.isfinite(loss):
        raise BadInput(english("{text!r} is no budget of a metric.", text=text), fix=_BUDGET_FIX)
    return MetricBudget(name.strip(), loss, given.strip().endswith("%"))


def metrics_of(document: RunDocument) -> tuple[MetricScores, ...]:
    """The metrics in a run; none where it had no labels and no evaluator."""
    found = None if document.diagnosis is None else document.diagnosis.metric
    return () if found is None else (found,)


def read_scores(path: Path) -> tuple[MetricScores, ...]:
    """Read a CSV of scores: a column ``sample`` with names, and one for each metric; more is better in all.

    A metric whose name starts with a minus is better when it is lower.

    Raises:
        BadInput: It cannot be read, or holds something else.
    """
    rows = parse_csv(read_small(path, what=english("The scores")), path, fix=_CSV_FIX)
    lines = [line for line in rows if any(map(str.strip, line))]
    header = [name.strip() for name in lines[0]] if lines else []
    if _SAMPLE not in header or len(header) < 2 or len(set(header)) < len(header):
        raise BadInput(english("{path} has no columns 'sample' and a metric.", path=path), fix=_CSV_FIX)
    at = header.index(_SAMPLE)
    if any(len(line) != len(header) for line in lines[1:]) or len(lines) < 2:
        raise BadInput(english("{path} has lines without a value for each column.", path=path), fix=_CSV_FIX)
    samples = tuple(line[at].strip() for line in lines[1:])
    if len(set(samples)) < len(samples):
        raise BadInput(english("{path} has a sample twice.", path=path), fix=_CSV_FIX)
    found = []
    for column, name in enumerate(header):
        if column == at:
            continue
        try:
            values = tuple(float(line[column]) for line in lines[1:])
        except ValueError as error:
            what = english("{path}: the column {name!r} holds what is no number.", path=path, name=name)
            raise BadInput(what, fix=_CSV_FIX) from error
        if not all(map(math.isfinite, values)):
            what = english("{path}: the column {name!r} holds NaN or infinite values.", path=path, name=name)
            raise BadInput(what, fix=_CSV_FIX)
        found.append(MetricScores(name.removeprefix("-").strip(), not name.startswith("-"), samples, values))
    return tuple(found)


def judge_metrics(
    before: Iterable[MetricScores],
    after: Iterable[MetricScores],
    budgets: Sequence[MetricBudget] = (),
    *,
    strict: bool = False,
) -> tuple[GateMetric, ...]:
    """Judge every metric of the baseline, and those with a budget.

    A metric passes when it loses no more than it may, and fails when it does and so does the good end of the
    interval of its loss; between the two, and where samples of the baseline are lacking, there are too few samples
    to tell. Where it has one value for all samples the loss itself decides. It also fails when the run does not
    have it.

    Args:
        before: Of the baseline.
        after: Of the run.
        budgets: What they may lose.
        strict: Losses above what is allowed fail even where chance is not excluded.

    Raises:
        BadInput: A budget is for a metric that the baseline does not have.
    """
    old, new = ({each.name: each for each in side} for side in (before, after))
    given = {each.name: each for each in budgets}
    for name in given:
        if name not in old:
            known = ", ".join(sorted(old)) or "-"
            what = english("The baseline has no metric {name!r}; it has: {known}.", name=name, known=known)
            raise BadInput(
                what, fix=english("name one of these, or make the baseline with --labels or --evaluator")
            )
    found = []
    for name, scores in old.items():
        budget = given.get(name) or MetricBudget(name, 100 * _USUAL_LOSS, percent=True)
        found.append(_judged(scores, new.get(name), budget, strict=strict))
    return tuple(found)


def _judged(before: MetricScores, after: MetricScores | None, budget: MetricBudget, *, strict: bool) -> GateMetric:
    baseline = float(np.mean(before.values))
    allowed = budget.allowed(baseline)
    if after is None:
        return GateMetric(before.name, baseline, None, allowed=allowed, passed=False)
    change, paired = _change(before, after)
    over = change.loss > allowed * (1 + _ROUNDING)
    # The test is against the budget: that something was lost at all says nothing of how much may be.
    proven = over and (strict or math.isnan(change.low) or change.low > allowed)
    lacking = len(before.samples) - change.samples if paired else 0
    unclear = not proven and (over or lacking > 0)
    return GateMetric(
        before.name,
        baseline,
        float(np.mean(after.values)),
        loss=change.loss,
        low=None if math.isnan(change.low) else change.low,
        high=None if math.isnan(change.high) else change.high,
        chance=change.chance,
        samples=change.samples,
        paired=paired,
        allowed=allowed,
        passed=not proven and not unclear,
        unclear=unclear,
        lacking=lacking,
    )


def _change(before: MetricScores, after: MetricScores) -> tuple[PairedChange, bool]:
    """The loss over samples of the same name; over all of both where no two have one."""
    places = {name: at for at, name in enumerate(after.samples)}
    shared = [(at, places[name]) for at, name in enumerate(before.samples) if name in places]
    old, new = np.array(before.values), np.array(after.values)
    higher = before.higher_is_better
    if len(shared) > 1:
        left, right = zip(*shared, strict=True)
        return paired_change(old[list(left)], new[list(right)], higher_is_better=higher), True
    loss = float(old.mean() - new.mean()) if higher else float(new.mean() - old.mean())
    ends = unpaired_interval(*((old, new) if higher else (new, old))) or (math.nan, math.nan)
    return PairedChange(loss, *ends, unpaired_probability(old, new), int(new.size)), False
