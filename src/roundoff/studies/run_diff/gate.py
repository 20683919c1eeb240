"""A gate: whether a run lost more against its baseline than its nodes are allowed to."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from roundoff.core.coverage import Judgement, MetricScores
from roundoff.core.document import RunDocument
from roundoff.core.files import read_small
from roundoff.core.untrusted import parse_csv, read_json, read_toml
from roundoff.errors import BadInput, nearest
from roundoff.measure.inference import unpaired_interval, unpaired_probability
from roundoff.measure.metrics import ratio_db
from roundoff.measure.verdicts import PairedChange, paired_change, usual_limits
from roundoff.messages.message import NOTHING, Argument, Message, english, joined, message, verbatim
from roundoff.studies.run_diff.result import CEILING_DB, Gate, GateMetric, GateRow, RowDiff, RunDiff
from roundoff.studies.run_diff.study import LEVEL

# Budgets of a gate: how much each node may lose, and what it must reach, from a TOML or JSON file.

_TABLE, _GENERAL = "nodes", "max_regression"
_KEYS = ("loss", "at_least", "measure")
_IGNORED = "ignore"
_FIX = english('write lines like "head/*" = 0.5 or "head/*" = {{ loss = 0.5, at_least = 20 }} under [nodes]')


@dataclass(frozen=True, slots=True)
class GateBudget:
    """What nodes of one pattern may lose.

    Attributes:
        pattern: Shell pattern of tensor or node names.
        loss_db: Allowed loss against the baseline; None for the general limit.
        at_least_db: What must be reached, whatever the baseline; None when nothing must.
        ignored: Whether these nodes are not judged at all.
        measure: The only score it is for; empty for all.
    """

    pattern: str
    loss_db: float | None = None
    at_least_db: float | None = None
    ignored: bool = False
    measure: str = ""

    def fits(self, row: RowDiff) -> bool:
        """Whether it decides on a row."""
        if self.measure and self.measure != row.measure:
            return False
        return fnmatchcase(row.tensor, self.pattern) or (bool(row.node) and fnmatchcase(row.node, self.pattern))


@dataclass(frozen=True, slots=True)
class Budgets:
    """All of a file.

    Attributes:
        general_db: Loss allowed where none of the others says otherwise; None when the file does not say.
        nodes: In the order of the file; the first that fits decides.
    """

    general_db: float | None = None
    nodes: tuple[GateBudget, ...] = ()


def read_budgets(path: Path) -> Budgets:
    """Read a file of budgets.

    Raises:
        BadInput: It cannot be read, or says something else.
    """
    read = read_json if path.suffix.lower() == ".json" else read_toml
    content = read(path, what=english("The budget"), fix=_FIX)
    if not isinstance(content, dict):
        raise BadInput(english("{path} is no table of budgets.", path=path), fix=_FIX)
    for key in content:
        if key not in (_TABLE, _GENERAL):
            raise BadInput(
                english("{path} has an entry {key!r}.", path=path, key=key), fix=nearest(key, (_TABLE, _GENERAL))
            )
    nodes = content.get(_TABLE, {})
    if not isinstance(nodes, dict):
        raise BadInput(english("{path}: 'nodes' is no table.", path=path), fix=_FIX)
    general = content.get(_GENERAL)
    return Budgets(
        None if general is None else _limit(general, f"{path}: max_regression", least=0.0),
        tuple(_budgets(nodes, path)),
    )


def _budgets(nodes: Mapping[str, object], path: Path) -> Iterator[GateBudget]:
    for pattern, given in nodes.items():
        where = f"{path}: {pattern!r}"
        if given == _IGNORED:
            yield GateBudget(pattern, ignored=True)
        elif isinstance(given, dict):
            for key in given:
                if key not in _KEYS:
                    raise BadInput("{where} has a key {key!r}.", fix=nearest(key, _KEYS), where=where, key=key)
            loss, least = given.get("loss"), given.get("at_least")
            if loss is None and least is None:
                raise BadInput(english("{where} sets no limit.", where=where), fix=_FIX)
            yield GateBudget(
                pattern,
                None if loss is None else _limit(loss, where, least=0.0),
                None if least is None else _limit(least, where),
                measure=str(given.get("measure", "")),
            )
        else:
            yield GateBudget(pattern, _limit(given, where, least=0.0))


def _limit(given: object, where: str, *, least: float = -math.inf) -> float:
    try:
        number = decibels(str(given)) if not isinstance(given, bool) else math.nan
    except ValueError:
        number = math.nan
    if math.isnan(number) or number < least:
        limits = english("decibels from 0 on") if least == 0 else "decibels"
        raise BadInput(
            "{where} is {given!r}, which are no {limits}.", fix=_FIX, where=where, given=given, limits=limits
        )
    return number


def decibels(text: str) -> float:
    """Decibels as users write them: ``1``, ``0.5dB``, ``2 dB``.

    Raises:
        ValueError: It is something else.
    """
    plain = text.strip()
    if plain.lower().endswith("db"):
        plain = plain[:-2].strip()
    number = float(plain)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


MAX_REGRESSION_DB = 1.0
# Smaller probabilities are not told apart.
_LEAST_SHOWN = 0.001
_NO_BUDGETS = Budgets()


def judge_diff(  # noqa: PLR0913 - each is one thing that a gate allows
    diff: RunDiff,
    *,
    budgets: Budgets = _NO_BUDGETS,
    max_regression_db: float | None = None,
    problems: tuple[Message, ...] = (),
    doubts: tuple[Message, ...] = (),
    strict: bool = False,
    level: float = LEVEL,
) -> Gate:
    """Judge what differs.

    A row fails when its loss is above what is allowed and chance is excluded; where the same samples were scored
    but cannot be tested, as with a single one, the loss itself decides. It also fails when it lost its score, or
    is below what it must reach.

    Args:
        diff: The baseline before, the run after.
        budgets: Of single nodes.
        max_regression_db: Loss allowed elsewhere; overrules what the budgets say in general.
        problems: What else keeps the run from passing.
        doubts: Why it could prove nothing even with all scores within budget.
        strict: Losses above what is allowed fail even where chance is not excluded.
        level: Probability up to which chance is excluded; less where many runs are judged together.

    Raises:
        BadInput: Nothing can be judged.
    """
    if diff.pairing == "none" and _other_samples(diff) and diff.rows:
        what = english("The samples of run and baseline differ, and no scores of single samples are kept.")
        raise BadInput(what, fix=english("make the baseline again with this version, on the same samples"))
    general = max_regression_db if max_regression_db is not None else budgets.general_db
    general = MAX_REGRESSION_DB if general is None else general
    rows = []
    used: set[str] = set()
    for row in diff.rows:
        budget = next((each for each in budgets.nodes if each.fits(row)), None)
        if budget is not None:
            used.add(budget.pattern)
        comparable = diff.pairing != "unpaired"
        rows.append(_judge(row, budget, general, comparable=comparable, strict=strict, level=level))
    unused = tuple(each.pattern for each in budgets.nodes if each.pattern not in used)
    return Gate(general, tuple(rows), problems, unused, doubts=doubts)


def _other_samples(diff: RunDiff) -> bool:
    return any(each.what in ("data", "reference") for each in diff.inputs)


def _judge(
    row: RowDiff, budget: GateBudget | None, general: float, *, comparable: bool, strict: bool, level: float
) -> GateRow:
    pattern = "" if budget is None else budget.pattern
    if budget is not None and budget.ignored:
        return GateRow(row.tensor, row.measure, pattern, None, None, None, message("run_diff.ignored"))
    allowed = general if budget is None or budget.loss_db is None else budget.loss_db
    least = None if budget is None else budget.at_least_db
    lost = _lost(row, allowed, comparable=comparable, strict=strict, level=level)
    why = _broken(row) or _below(row, least) or lost
    if not why and row.change_db is None:
        return GateRow(row.tensor, row.measure, pattern, allowed, least, None, message("run_diff.no_common_score"))
    return GateRow(row.tensor, row.measure, pattern, allowed, least, not why, why)


def _broken(row: RowDiff) -> Message:
    return verbatim(row.detail) if row.change == "worse" else NOTHING


def _below(row: RowDiff, least: float | None) -> Message:
    if least is None or (row.after is not None and row.after >= least):
        return NOTHING
    none = row.after is None
    found = message("terminal.no_score") if none else message("run_diff.now_db", db=_shown_db(row.after))
    return message("run_diff.must_reach", text=found, least=f"{least:g}")


def _lost(row: RowDiff, allowed: float, *, comparable: bool, strict: bool, level: float) -> Message:
    if row.change_db is None or -row.change_db <= allowed or row.change_db == 0:
        return NOTHING
    chance = row.loss_probability
    if chance is None:
        if not (comparable or strict):
            return NOTHING
        certain = message("run_diff.untestable")
    elif chance > level:
        if not strict:
            return NOTHING
        certain = message("run_diff.not_excluded")
    elif chance < _LEAST_SHOWN:
        certain = message("run_diff.by_chance_less")
    else:
        certain = message("run_diff.by_chance", share=f"{100 * chance:.1f}")
    numbers = {"loss": f"{-row.change_db:.1f}", "before": _shown_db(row.before), "after": _shown_db(row.after)}
    return joined((message("run_diff.lost", **numbers, allowed=f"{allowed:g}"), certain))


def _shown_db(value: float | None) -> Argument:
    """Decibels as the page of a diff shows them: what reaches the ceiling is no error of the quantization."""
    exact = value is not None and value >= CEILING_DB
    return message("common.exact") if exact else f"{value:.1f}"


def _judgement(run: RunDocument, diff: RunDiff) -> Judgement | None:
    """What a run said of its outputs when it was made."""
    found: Judgement | None = getattr(run, diff.compared).judgement
    return found


def gate_doubts(after: RunDocument, diff: RunDiff) -> tuple[Message, ...]:
    """Why scores within budget prove nothing: the run lacks evidence itself, or samples of the baseline."""
    own = _judgement(after, diff)
    found = [message("run_diff.own_doubt", text=each.text) for each in (() if own is None else own.doubts)]
    if own is not None and own.grade == "no_evidence" and not found:
        found.append(message("run_diff.own_evidence"))
    before, count = diff.samples
    if diff.common is not None and diff.common < before:
        found.append(message("run_diff.samples_lost", common=diff.common, before=before))
    elif diff.common is None and count < before:
        found.append(message("run_diff.samples_fewer", count=count, before=before))
    return tuple(found)


def new_problems(before: RunDocument, after: RunDocument, diff: RunDiff) -> tuple[Message, ...]:
    """What keeps a run from passing beside its scores: outputs it lacks, causes that a diagnosis proves anew."""
    lacking = () if after.comparison is None else after.comparison.verdict.missing_outputs
    known = () if before.comparison is None else before.comparison.verdict.missing_outputs
    outputs = () if before.network is None else before.network.outputs
    gone = [name for name in lacking if name not in known]
    gone += [name for name in diff.only_before if name in outputs and name not in gone]
    found = tuple(message("run_diff.missing_output", name=name) for name in gone)
    # A run whose outputs were not all judged has not passed, whatever its baseline was content with.
    for part in (after.comparison, after.diagnosis):
        if part is not None and part.outputs is not None:
            what = "output" if part.outputs.known else "tensor"
            lost = [each.name for each in part.outputs.not_judged if each.name not in gone]
            found += tuple(message(f"run_diff.{what}_not_judged", name=name) for name in lost)
    if after.diagnosis is None:
        return found
    # Suspected findings are no verdict.
    new = (name for name in diff.only_after if not name.endswith("(suspected)"))
    return (*found, *(message("run_diff.new_finding", name=name) for name in new))


@dataclass(frozen=True, slots=True)
class GateRules:
    """What a gate allows.

    Attributes:
        budgets: Of single nodes.
        max_regression_db: Loss allowed elsewhere; overrules what the budgets say in general.
        metrics: What metrics may lose.
        strict: Losses above what is allowed fail even where chance is not excluded.
        level: Probability up to which chance is excluded.
    """

    budgets: Budgets = _NO_BUDGETS
    max_regression_db: float | None = None
    metrics: "tuple[MetricBudget, ...]" = ()
    strict: bool = False
    level: float = LEVEL


def _allowed_more(judged: Gate, own: Judgement | None) -> bool:
    """Whether the user's budgets let all outputs lose more than is usual, or say what they must reach."""
    outputs = () if own is None else own.coverage.outputs.judged
    rows = [row for row in judged.rows if row.tensor in outputs]
    return bool(rows) and all(
        row.allowed_db is None or row.at_least_db is not None or row.allowed_db > MAX_REGRESSION_DB for row in rows
    )


def _least_inner_db(own: Judgement | None) -> float:
    """What an inner tensor must keep where the usual limits of outputs allow no less; infinite under others."""
    limits = usual_limits()
    if own is None or own.grade != "fine" or own.limits != limits.describe():
        return math.inf
    allowed = [each.limit for each in limits.thresholds if each.metric == "relative_euclidean"]
    return max((ratio_db(1.0, limit**2) for limit in allowed), default=math.inf)


def _without_inner_losses(judged: Gate, diff: RunDiff, rules: GateRules, own: Judgement | None) -> Gate:
    """A gate that notes inner tensors within the limits of outputs, where every output got better.

    Whoever sets a budget, or asks for a strict gate, wants them judged by that.
    """
    least = _least_inner_db(own)
    given = rules.strict or rules.max_regression_db is not None or rules.budgets.general_db is not None
    judged_outputs = set() if own is None else set(own.coverage.outputs.judged)
    if given or not diff.better_outputs or not judged_outputs <= {row.tensor for row in diff.outputs}:
        return judged
    rows = []
    for row, found in zip(diff.rows, judged.rows, strict=True):
        inner = row.tensor not in judged_outputs and not row.output
        by_loss = found.passed is False and not found.budget and row.change != "untested" and not row.detail
        if inner and by_loss and row.after is not None and row.after >= least:
            why = joined((found.why, message("run_diff.within_outputs", least=f"{least:.1f}")))
            rows.append(replace(found, passed=True, why=why))
        else:
            rows.append(found)
    return replace(judged, rows=tuple(rows))


def gate_runs(
    before: RunDocument,
    after: RunDocument,
    diff: RunDiff,
    rules: GateRules,
    *,
    more: tuple[Sequence[MetricScores], Sequence[MetricScores]] = ((), ()),
) -> RunDiff:
    """Judge a run against its baseline: its scores, its problems and its metrics.

    Args:
        before: The baseline.
        after: The run.
        diff: What differs.
        rules: What is allowed.
        more: Further metrics of the baseline, and of the run.

    Raises:
        BadInput: Nothing can be judged, or a budget is for a metric that the baseline does not have.
    """
    was, own = _judgement(before, diff), _judgement(after, diff)
    lossy = own is not None and own.grade == "lossy"
    judged = judge_diff(
        diff,
        budgets=rules.budgets,
        max_regression_db=rules.max_regression_db,
        problems=new_problems(before, after, diff),
        doubts=gate_doubts(after, diff),
        strict=rules.strict,
        level=rules.level,
    )
    judged = _without_inner_losses(judged, diff, rules, own)
    newly = lossy and was is not None and was.grade != "lossy" and not _allowed_more(judged, own)
    if newly:
        judged = replace(judged, problems=(message("run_diff.newly_lossy"), *judged.problems))
    old, new = ((*metrics_of(each), *given) for each, given in zip((before, after), more, strict=True))
    metrics = judge_metrics(old, new, rules.metrics, strict=rules.strict)
    covered = None if own is None else own.coverage
    return replace(diff, gate=replace(judged, metrics=metrics, coverage=covered, lossy=lossy and not newly))


# A gate on the user's metric: what a run, or a file of scores from elsewhere, may lose against its baseline.

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
