"""A check of a deployment's inputs and outputs for people."""

import math
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from roundoff.core.io_check import Explanation, IoCheck, StageCheck
from roundoff.core.wording import counted
from roundoff.report.notes import note_lines
from roundoff.report.verdict import VerdictLine, verdict_page

__all__ = ["io_check_page"]

_WORDS = {True: "pass", False: "FAIL", None: "--"}


def io_check_page(check: IoCheck) -> RenderableType:
    """The verdict, the stages, and for those that failed what differs and what to set."""
    parts: list[RenderableType] = [verdict_page(_headline(check), _stages(check))]
    for stage in check.stages:
        lines = list(_details(stage))
        if lines:
            parts += [Text(""), verdict_page(_heading(stage), lines)]
    if check.notes:
        parts += [Text(""), *note_lines(check.notes)]
    return Group(*parts)


def _headline(check: IoCheck) -> Text:
    failed = check.first_failure
    text = Text()
    if failed is not None:
        text.append("DIFFERENT", style="bold red")
        text.append(f": training and the deployed side part at the stage {failed.stage!r}")
        if failed.explanation is not None:
            text.append(f" ({counted(len(failed.explanation.changes), 'difference')} named below)")
    elif any(stage.passed for stage in check.stages):
        text.append("SAME", style="bold green")
        many = sum(stage.passed is True for stage in check.stages)
        text.append(f": training and the deployed side agree at {counted(many, 'stage')}")
    else:
        text.append("NOT COMPARED", style="bold yellow")
        text.append(": no stage has both sides")
    return text


def _stages(check: IoCheck) -> Iterator[VerdictLine]:
    for stage in check.stages:
        text = _WORDS[stage.passed]
        if stage.max_abs_error is not None:
            shape = f"max |a - b| {stage.max_abs_error:.3g}"
            if math.isinf(stage.max_abs_error):
                finite = stage.mean_abs_error is None or not math.isnan(stage.mean_abs_error)
                shape = "shapes differ" if finite else "one side is not finite"
            allowed = f"allowed {stage.tolerance:g}"
            text += f"  {shape}, {allowed}, {counted(stage.samples, 'sample')}"
            if not stage.passed and stage.samples > 1 and stage.worst_sample:
                text += f", worst {stage.worst_sample}"
        yield stage.stage, text


def _heading(stage: StageCheck) -> Text:
    if stage.passed is not False:
        return Text(f"{stage.stage}:", style="bold")
    explanation = stage.explanation
    if explanation is None:
        return Text(f"{stage.stage}: no transformation explains the difference", style="bold")
    count = counted(explanation.samples, "sample")
    if explanation.exact:
        return Text(f"{stage.stage}: explained, checked on all values of {count}", style="bold")
    return Text(f"{stage.stage}: almost explained, checked on {count}", style="bold")


def _details(stage: StageCheck) -> Iterator[VerdictLine]:
    if stage.shapes and stage.passed is False:
        yield "arrays", stage.shapes
    if stage.explanation is not None:
        yield from _explained(stage.explanation)
    for label, steps in (("training", stage.training_from_original), ("deployed", stage.deployed_from_original)):
        if steps:
            yield label, f"from the original: {'; '.join(steps)}"
    for number, text in enumerate(stage.excluded):
        yield ("excluded" if not number else ""), text
    for number, text in enumerate(stage.notes):
        yield ("note" if not number else ""), text


def _explained(explanation: Explanation) -> Iterator[VerdictLine]:
    for number, change in enumerate(explanation.changes, 1):
        yield f"{number}.", change.text
        if change.correction is not None:
            yield "   set", f"{change.correction.setting}: {change.correction.value}"
            if change.correction.fields:
                yield "", change.correction.fields
    before = "another shape" if math.isinf(explanation.before) else f"max {explanation.before:.3g}"
    left = f"{before} before, max {explanation.residual:.3g} (rms {explanation.residual_rms:.3g}) once undone"
    yield "left", left
    for text in explanation.alternatives:
        yield "or", text
    for text in explanation.notes:
        yield "note", text
