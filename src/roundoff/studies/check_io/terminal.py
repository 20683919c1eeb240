"""A check of a deployment's inputs and outputs for people."""

import math
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from roundoff.messages.catalogue import told
from roundoff.messages.phrases import commas, count_of, semicolons
from roundoff.messages.sentences import sentence
from roundoff.pages.terminal import VerdictLine, note_lines, verdict_page
from roundoff.studies.check_io.result import Explanation, IoCheck, StageCheck

__all__ = ["io_check_page"]

_WORDS = {True: "io_text.pass", False: "io_text.fail"}


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
        text.append(told("io_text.word_different"), style="bold red")
        text.append(told("io_text.different", stage=_stage(failed)))
        if failed.explanation is not None:
            changes = told("io_text.named", count=len(failed.explanation.changes))
            text.append(f" {changes}" if changes.isascii() else changes)
    elif any(stage.passed for stage in check.stages):
        text.append(told("io_text.word_same"), style="bold green")
        many = sum(stage.passed is True for stage in check.stages)
        text.append(told("io_text.same", stages=count_of(many, "stage")))
    else:
        text.append(told("io_text.word_not_compared"), style="bold yellow")
        text.append(told("io_text.not_compared"))
    return text


def _stages(check: IoCheck) -> Iterator[VerdictLine]:
    for stage in check.stages:
        text = "--" if stage.passed is None else told(_WORDS[stage.passed])
        if stage.max_abs_error is not None:
            shape = told("io_text.largest", value=f"{stage.max_abs_error:.3g}")
            if math.isinf(stage.max_abs_error):
                finite = stage.mean_abs_error is None or not math.isnan(stage.mean_abs_error)
                shape = told("io_text.shapes_differ") if finite else told("io_text.not_finite")
            allowed = told("io_text.allowed", value=f"{stage.tolerance:g}")
            said = commas(shape, allowed, count_of(stage.samples, "sample"))
            if not stage.passed and stage.samples > 1 and stage.worst_sample:
                said = commas(said, told("io_text.worst", sample=stage.worst_sample))
            text += f"  {said}"
        yield _stage(stage), text


def _stage(stage: StageCheck) -> str:
    return told(f"io_text.stage_{stage.stage}")


def _heading(stage: StageCheck) -> Text:
    if stage.passed is not False:
        return Text(told("io_text.heading", stage=_stage(stage)), style="bold")
    explanation = stage.explanation
    if explanation is None:
        return Text(told("io_text.unexplained", stage=_stage(stage)), style="bold")
    count = count_of(explanation.samples, "sample")
    key = "io_text.explained" if explanation.exact else "io_text.almost"
    return Text(told(key, stage=_stage(stage), samples=count), style="bold")


def _details(stage: StageCheck) -> Iterator[VerdictLine]:
    if stage.shapes and stage.passed is False:
        yield told("io_text.arrays"), sentence(stage.shapes)
    if stage.explanation is not None:
        yield from _explained(stage.explanation)
    for label, steps in (("training", stage.training_from_original), ("deployed", stage.deployed_from_original)):
        if steps:
            yield told(f"io_text.{label}"), told("io_text.from_original", steps=semicolons(*map(sentence, steps)))
    for number, text in enumerate(stage.excluded):
        yield ("" if number else told("io_text.excluded")), sentence(text)
    for number, text in enumerate(stage.notes):
        yield ("" if number else told("terminal.note_label")), sentence(text)


def _explained(explanation: Explanation) -> Iterator[VerdictLine]:
    for number, change in enumerate(explanation.changes, 1):
        yield f"{number}.", sentence(change.text)
        if change.correction is not None:
            setting, value = sentence(change.correction.setting), sentence(change.correction.value)
            yield f"   {told('io_text.set')}", told("io_text.setting", setting=setting, value=value)
            if change.correction.fields:
                yield "", sentence(change.correction.fields)
    before = told("io_text.another_shape")
    if not math.isinf(explanation.before):
        before = told("io_text.most", value=f"{explanation.before:.3g}")
    yield (
        told("io_text.left"),
        told(
            "io_text.residual",
            before=before,
            after=f"{explanation.residual:.3g}",
            rms=f"{explanation.residual_rms:.3g}",
        ),
    )
    for text in explanation.alternatives:
        yield told("io_text.or"), sentence(text)
    for text in explanation.notes:
        yield told("terminal.note_label"), sentence(text)
