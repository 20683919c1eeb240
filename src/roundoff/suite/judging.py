"""A gate over a whole suite: goals, and what units lost against an earlier run, by the tests of the gate."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roundoff.core.document import RunDocument
from roundoff.errors import EXIT_OK, BadInput, nearest
from roundoff.messages.message import Message, Remark, english, message, message_of
from roundoff.studies.run_diff.gate import GateRules, decibels, gate_runs, judge_metrics, metric_budget
from roundoff.studies.run_diff.study import FLOOR_DB, LEVEL, diff_runs
from roundoff.suite.evaluation import evaluation_doubts, joined_scores, metric_figures
from roundoff.suite.matrix import BOARD, EVALUATE, Suite, SuiteUnit
from roundoff.suite.store import SuiteRun, UnitStore
from roundoff.suite.unit import UnitState, run_of

if TYPE_CHECKING:
    from roundoff.studies.run_diff.result import GateMetric, RunDiff

LAST = "last"
"""The baseline that is the newest run of other content."""

_NAMED = 3


@dataclass(frozen=True, slots=True)
class GatedUnit:
    """A unit, or all ranges of an evaluation, as the gate sees it.

    Attributes:
        label: What it is called.
        unit: The unit; the first of several ranges.
        states: What became of each.
        figures: Its numbers, those of all ranges together.
        failures: Why it does not pass.
        doubts: Why it could not be judged.
        compared: Whether it was held against a baseline.
        exit_code: Of its own verdict.
    """

    label: str
    unit: SuiteUnit
    states: tuple[UnitState, ...]
    figures: Mapping[str, Any] = field(default_factory=dict)
    failures: tuple[Remark, ...] = ()
    doubts: tuple[Remark, ...] = ()
    compared: bool = False
    exit_code: int | None = None

    @property
    def done(self) -> bool:
        """Whether all of it is done."""
        return all(each.state in ("done", "known") for each in self.states)

    @property
    def seconds(self) -> float:
        """Work that was done now."""
        return sum(each.seconds for each in self.states)

    @property
    def passed(self) -> bool:
        """Whether it may pass."""
        return self.done and not self.failures and not self.doubts


def wholes(states: Sequence[UnitState]) -> Iterator[tuple[str, tuple[UnitState, ...]]]:
    """Units with those that are ranges of the same evaluation."""
    found: dict[str, list[UnitState]] = {}
    for each in states:
        found.setdefault(each.unit.whole, []).append(each)
    for label, parts in found.items():
        yield label, tuple(parts)


@dataclass(frozen=True, slots=True)
class SuiteBaseline:
    """What units are held against.

    Attributes:
        run: The run.
        store: Where its documents are.
    """

    run: SuiteRun
    store: UnitStore

    def documents(self, label: str) -> list[dict[str, Any]]:
        """Of a unit, or of all ranges of an evaluation; none where one is missing."""
        keys = [each.get("key") for each in self.run.units if str(each.get("label")).partition("[")[0] == label]
        found = [None if key is None else self.store.get(str(key)) for key in keys]
        return [each for each in found if each is not None] if None not in found else []


def find_baseline(given: str, suite: Suite, store: UnitStore, states: Sequence[UnitState]) -> SuiteBaseline:
    """The run that is meant: ``last``, the beginning of when it was, or another store, of which the newest counts.

    Raises:
        BadInput: There is no such run.
    """
    runs = store.history(suite.name)
    if given == LAST:
        now = {each.unit.label: each.unit.key for each in states}
        other = [run for run in runs if any(now.get(str(e.get("label"))) != e.get("key") for e in run.units)]
        chosen = (other or runs)[-1:]
    else:
        # As it is shown, or as it is kept.
        when = given.replace("-", "").replace(":", "").replace(" ", "T")
        chosen = [run for run in runs if run.when.startswith(when)][-1:]
        if not chosen and ("/" in given or "\\" in given or Path(given).is_dir()):
            elsewhere = UnitStore(given)
            found = elsewhere.history(suite.name)
            if found:
                return SuiteBaseline(found[-1], elsewhere)
    if not chosen:
        known = [run.when for run in runs]
        what = english("There is no run {given!r} of {suite} to hold this against.", given=given, suite=suite.name)
        fix = nearest(given, known) if known else english("'roundoff suite run' makes one; or name another store")
        raise BadInput(what, fix=fix)
    return SuiteBaseline(chosen[0], store)


def judge_states(
    states: Sequence[UnitState], store: UnitStore, *, baseline: SuiteBaseline | None = None, strict: bool = False
) -> tuple[GatedUnit, ...]:
    """Judge every unit by its goals, and by a baseline.

    Chance is excluded over all units together: with 200 of them one by one, ten would fail by chance each night.

    Args:
        states: What became of each unit.
        store: Where the documents are.
        baseline: What they are held against.
        strict: Losses above what is allowed fail even where chance is not excluded.

    Raises:
        BadInput: A goal cannot be read.
    """
    every = list(wholes(states))
    level = LEVEL / max(1, len(every))

    def judged(whole: tuple[str, tuple[UnitState, ...]]) -> GatedUnit:
        return _judged(*whole, store, baseline, strict=strict, level=level)

    return tuple(store.each(judged, every))


def _judged(
    label: str,
    parts: tuple[UnitState, ...],
    store: UnitStore,
    baseline: SuiteBaseline | None,
    *,
    strict: bool,
    level: float,
) -> GatedUnit:
    unit = parts[0].unit
    documents = [store.get(each.unit.key) for each in parts]
    there = [each for each in documents if each is not None]
    if len(there) < len(parts):
        lost = [each for each, document in zip(parts, documents, strict=True) if document is None]
        return GatedUnit(label, unit, parts, failures=tuple(_not_done(lost[0].problem)))
    code = max((int(each.get("exit_code") or 0) for each in there), default=0)
    if unit.command == EVALUATE:
        figures = metric_figures([each["scores"] for each in there])
    else:
        figures = dict(there[0].get("figures") or {})
    failures: list[Remark] = list(_missed_goals(unit, figures, code))
    doubts: list[Remark] = []
    if unit.command == EVALUATE:
        doubts += [message("run_diff.own_doubt", text=each.text) for each in evaluation_doubts(there)]
    compared = False
    if baseline is not None:
        before = baseline.documents(label)
        compared = bool(before)
        if not before:
            doubts.append(message("suite.no_baseline", when=baseline.run.when))
        else:
            rules = GateRules(
                max_regression_db=_decibels(unit.goals.get("max_regression")),
                metrics=tuple(map(metric_budget, unit.goals.get("metrics", ()))),
                strict=strict,
                level=level,
            )
            lost_now, unsure = _regressions(unit, before, there, rules)
            failures += lost_now
            doubts += unsure
    return GatedUnit(label, unit, parts, figures, tuple(failures), tuple(doubts), compared, code)


def _decibels(given: Any) -> float | None:
    return None if given is None else decibels(str(given))


def _not_done(problem: Mapping[str, Any]) -> Iterator[Message]:
    """Why a unit is not done, and what to do."""
    if not problem.get("what"):
        yield message("suite.waiting")
        return
    # A store of an earlier version has the English alone.
    said = problem.get("said") or problem
    yield message("suite.not_done", why=message_of(said["what"]))
    if fix := message_of(said.get("fix", "")):
        yield message("suite.fix", fix=fix)


def _missed_goals(unit: SuiteUnit, figures: Mapping[str, Any], code: int) -> Iterator[Message]:
    goals = unit.goals
    verdict = figures.get("verdict") or ["", ""]
    if goals.get("verdict", True) and code != EXIT_OK:
        yield message("suite.bad_verdict", word=_word(verdict) or str(code))
    for name, key in (("min_output_db", "output_db"), ("min_accuracy", "accuracy")):
        if name not in goals:
            continue
        value = figures.get("repaired_" + key.removeprefix("output_"))
        value = figures.get(key) if value is None else value
        if value is None and not _asked(unit, name):
            continue
        if value is None:
            yield message("suite.no_figure", name=name)
        elif not float(value) >= float(goals[name]):
            yield message("suite.goal_missed", name=name, value=f"{float(value):.4g}", goal=f"{goals[name]:g}")


def _word(verdict: Sequence[Any]) -> Message | None:
    en, zh = map(str, verdict)
    return message("suite.word", en=en, zh=zh) if en else None


def _asked(unit: SuiteUnit, goal: str) -> bool:
    """Whether a unit must have the figure of a goal: an audit has no decibels, layers no accuracy."""
    if goal == "min_output_db":
        return unit.command in ("diagnose", "layers", "compare", "quantize", BOARD)
    return unit.command == EVALUATE or (unit.command == "diagnose" and "labels" in unit.options)


def _regressions(
    unit: SuiteUnit, before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], rules: GateRules
) -> tuple[list[Remark], list[Remark]]:
    """What a unit lost against its baseline, and why that could not be told."""
    if unit.command == EVALUATE:
        judged = judge_metrics([joined_scores(before)], [joined_scores(after)], rules.metrics, strict=rules.strict)
        return _metric_failures(judged)
    old, new = (run_of(each[0], unit.label) for each in (before, after))
    if old is None or new is None:
        return [], [message("suite.not_comparable")]
    codes = [int(each[0].get("exit_code") or 0) for each in (before, after)]
    if not _has_scores(old) or not _has_scores(new):
        # What has no scores of nodes has a verdict all the same.
        worse = codes[0] == EXIT_OK and codes[1] != EXIT_OK
        return ([message("suite.verdict_lost")] if worse else []), []
    try:
        floor = _decibels(unit.goals.get("floor"))
        diff = diff_runs(("baseline", old), ("run", new), floor_db=FLOOR_DB if floor is None else floor)
        found = gate_runs(old, new, diff, rules)
    except BadInput as error:
        return [], [error.what]
    return _gate_failures(found)


def _has_scores(document: RunDocument) -> bool:
    sections = ("comparison", "layers", "sensitivity", "accumulation", "diagnosis")
    return any(getattr(document, name) is not None for name in sections)


def _gate_failures(found: "RunDiff") -> tuple[list[Remark], list[Remark]]:
    gate = found.gate
    if gate is None:
        return [], []
    lost = [row for row in gate.rows if row.passed is False]
    failures: list[Remark] = [
        message("suite.tensor_lost", name=row.tensor, measure=row.measure, why=row.why) for row in lost[:_NAMED]
    ]
    if len(lost) > _NAMED:
        failures.append(message("suite.more_lost", count=len(lost) - _NAMED))
    failures += gate.problems
    metrics = _metric_failures(gate.metrics)
    return [*failures, *metrics[0]], [*gate.doubts, *metrics[1]]


def _metric_failures(judged: "Sequence[GateMetric]") -> tuple[list[Remark], list[Remark]]:
    failures: list[Remark] = []
    doubts: list[Remark] = []
    for each in judged:
        if each.passed:
            continue
        if each.loss is None:
            failures.append(message("suite.metric_gone", name=each.name))
            continue
        numbers = {"name": each.name, "loss": f"{each.loss:.4g}", "allowed": f"{each.allowed:.4g}"}
        key = "suite.metric_unclear" if each.unclear else "suite.metric_lost"
        (doubts if each.unclear else failures).append(message(key, **numbers, count=each.samples))
    return failures, doubts
