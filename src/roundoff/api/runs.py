"""What is done with finished runs, as functions: diff, gate, report, explain."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from roundoff.api.call import Call, Limits, public
from roundoff.api.inputs import PathLike, as_path, describe_value, is_path
from roundoff.api.outcome import Outcome
from roundoff.api.report_file import ReportFile
from roundoff.core.provenance import bytes_input, input_file
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED, BadInput
from roundoff.messages.message import english

if TYPE_CHECKING:
    from roundoff.core.document import InputFile, RunDocument
    from roundoff.studies.run_diff.result import RunDiff

RunLike: TypeAlias = Any
"""A run directory, its ``run.json``, a run document, or what a public function gave."""


def _opened(run: RunLike) -> "tuple[str, RunDocument]":
    """What a run is called, and its document.

    Raises:
        BadInput: It is no run.
    """
    from roundoff.core.document import RunDocument, load_document

    if isinstance(run, Outcome):
        return "(outcome)", run.document
    if isinstance(run, RunDocument):
        return "(document)", run
    if is_path(run):
        return str(run), load_document(Path(run))
    raise BadInput(
        english("A run is {said_of}.", said_of=describe_value(run)),
        fix=english("give a run directory, its run.json, or what a function gave"),
    )


def _origin(role: str, run: RunLike, document: "RunDocument") -> "InputFile":
    from roundoff.core.document import DOCUMENT_NAME, to_json

    if not is_path(run):
        return bytes_input(role, "(run)", to_json(document).encode("utf-8", "surrogatepass"))
    path = Path(run)
    return input_file(role, path / DOCUMENT_NAME if path.is_dir() else path)


@public
def diff(
    before: RunLike, after: RunLike, *, floor: float | str | None = None, paired: bool = False
) -> "Outcome[RunDiff]":
    """Compare two runs: which nodes got better or worse, and can it be chance?

    Args:
        before: The run before.
        after: The run after.
        floor: Smaller changes are none; in decibels.
        paired: Samples of one name are the same ones, although their files differ.
    """
    call = Call("diff", {}, Limits)
    return _compared(call, before, after, floor=floor, paired=paired)


def _compared(
    call: Call,
    before: RunLike,
    after: RunLike,
    *,
    floor: float | str | None,
    paired: bool,
    judge: "Callable[[RunDocument, RunDocument, RunDiff], RunDiff] | None" = None,
) -> "Outcome[RunDiff]":
    from roundoff.studies.run_diff.study import FLOOR_DB, diff_runs

    least = _decibels("--floor", floor)
    old, new = _opened(before), _opened(after)
    found = diff_runs(old, new, floor_db=FLOOR_DB if least is None else least, paired=paired)
    if judge is not None:
        found = judge(old[1], new[1], found)
    read = (_origin("before", before, old[1]), _origin("after", after, new[1]))
    code = EXIT_OK if found.gate is None or found.gate.passed else EXIT_THRESHOLD_MISSED
    return Outcome(found, call.document(read, new[1].network, diff=found), code)


def _decibels(option: str, given: float | str | None) -> float | None:
    from roundoff.studies.run_diff.gate import decibels

    if given is None:
        return None
    try:
        found = decibels(str(given))
    except ValueError:
        found = -1.0
    if found < 0:
        raise BadInput(
            english("{option} {given!r} are no decibels.", option=option, given=given),
            fix=english("write them as 1 or 0.5dB"),
        )
    return found


@public
def gate(
    run: RunLike,
    baseline: RunLike,
    *,
    max_regression: float | str | None = None,
    budget: PathLike | None = None,
    metric: str | Sequence[str] = (),
    scores: PathLike | None = None,
    baseline_scores: PathLike | None = None,
    strict: bool = False,
    floor: float | str | None = None,
    paired: bool = False,
) -> "Outcome[RunDiff]":
    """Let a run pass, or not: has any node lost more against a baseline than it may?

    Args:
        run: The run.
        baseline: The run it is held against.
        max_regression: Loss that is allowed, in decibels.
        budget: TOML or JSON: what nodes may lose, or must reach, by pattern.
        metric: What metrics may lose, as ``top-1 accuracy: -0.5%``; 1 % where nothing is said.
        scores: A CSV of scores from elsewhere, such as a board: a column ``sample``, then one for each metric.
        baseline_scores: The same of the baseline.
        strict: Losses over budget fail even where chance is not excluded.
        floor: Smaller changes are none; in decibels.
        paired: Samples of one name are the same ones, although their files differ.
    """
    from roundoff.studies.run_diff.gate import (
        Budgets,
        gate_coverage,
        gate_doubts,
        judge_diff,
        new_problems,
        read_budgets,
    )
    from roundoff.studies.run_diff.metrics import judge_metrics, metric_budget, metrics_of, read_scores

    call = Call("gate", {}, Limits)
    budgets = Budgets() if budget is None else read_budgets(as_path(budget, option="--budget"))
    most = _decibels("--max-regression", max_regression)
    allowed = [metric_budget(each) for each in ([metric] if isinstance(metric, str) else metric)]
    if (scores is None) != (baseline_scores is None):
        what = english("Scores of one side were given, and none of the other.")
        raise BadInput(what, fix=english("give both --scores and --baseline-scores"))
    given = [
        () if path is None else read_scores(as_path(path, option=option))
        for option, path in (("--baseline-scores", baseline_scores), ("--scores", scores))
    ]

    def judge(before: "RunDocument", after: "RunDocument", found: "RunDiff") -> "RunDiff":
        problems = new_problems(before, after, found)
        judged = judge_diff(
            found,
            budgets=budgets,
            max_regression_db=most,
            problems=problems,
            doubts=gate_doubts(after, found),
            strict=strict,
        )
        old, new = ((*metrics_of(each), *more) for each, more in zip((before, after), given, strict=True))
        metrics = judge_metrics(old, new, allowed, strict=strict)
        return replace(found, gate=replace(judged, metrics=metrics, coverage=gate_coverage(after, found)))

    return _compared(call, baseline, run, floor=floor, paired=paired, judge=judge)


@public
def report(
    run: RunLike, file: PathLike, *, format: str | None = None, title: str = "", force: bool = False
) -> tuple[Path, ...]:
    """Turn a run into a report: one HTML file that opens anywhere, or another format.

    Args:
        run: The run.
        file: Where it goes; a folder for CSV.
        format: Form of the report; by the ending of the file when None.
        title: Heading of the report.
        force: Replace an earlier report.

    Returns:
        The files that were written.
    """
    from roundoff.core.document import DOCUMENT_NAME, RECORD_NAME

    target = ReportFile(as_path(file, option="The report"), format, title=title, force=force)
    path = Path(run) if is_path(run) else None
    if path is not None and (path / RECORD_NAME).is_file() and not (path / DOCUMENT_NAME).is_file():
        fix = english(
            "'roundoff audit {path} --html FILE' reports its precisions, 'roundoff layers' its errors", path=path
        )
        raise BadInput(
            english("{path} holds a quantized model, and nothing that was found out about it.", path=path), fix=fix
        )
    called, document = _opened(run)
    return target.write(document, origin=called)


@public
def explain(name: str | int, run: RunLike | None = None) -> str:
    """Explain in one paragraph a node, finding, metric, verdict, cause or column.

    Args:
        name: What to explain.
        run: With it nodes and findings are explained with the numbers of that run.
    """
    from roundoff.measure.metrics import all_metrics, get_metric, judging, mean_of
    from roundoff.messages.sanitize import escape_control
    from roundoff.report.explain import explain as explain_name

    document = None if run is None else _opened(run)[1]
    metrics = (*all_metrics(), *(get_metric(mean_of(each)) for each in judging()))
    return escape_control(explain_name(str(name), document, metrics=metrics))
