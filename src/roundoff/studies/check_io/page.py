"""The check of a deployment against training: stages, and the transformation between both sides."""

import base64
import math
from collections.abc import Iterator

from roundoff.core.document import RunDocument
from roundoff.messages.catalogue import Phrase, in_all, plain, say, told
from roundoff.messages.message import joined, phrase_of, shown
from roundoff.messages.phrases import commas, count_of, semicolons
from roundoff.pages.blocks import (
    Block,
    Cell,
    Column,
    Headline,
    Page,
    Picture,
    Pictures,
    Place,
    TableBlock,
    notes,
    spoken_facts,
)
from roundoff.studies.check_io.result import Explanation, IoCheck, StageCheck

__all__ = ["io_check_page"]

_WORDS = {True: "check_io.pass", False: "check_io.fail"}
# A terminal says it in lines.
_KEPT: tuple[Place, ...] = ("html", "csv")
_STAGES = (
    Column("stage", say("check_io.stage"), "text", on=_KEPT),
    Column("passed", say("check_io.passed"), "truth", on=_KEPT),
    Column("largest", say("check_io.column_largest"), "number", higher_is_better=False, on=_KEPT),
    Column("tolerance", say("check_io.tolerance"), "number", on=_KEPT),
    Column("samples", say("check_io.samples"), "count", on=_KEPT),
    Column("shapes", say("check_io.shapes"), "text", on=_KEPT),
    Column("explained", say("check_io.column_explained"), "text", on=_KEPT),
)
_CORRECTIONS = (
    Column("stage", say("check_io.stage"), "text", on=_KEPT),
    Column("setting", say("check_io.column_setting"), "text", on=_KEPT),
    Column("value", say("check_io.value"), "text", on=_KEPT),
    Column("fields", say("check_io.fields"), "text", on=_KEPT),
)
_Line = tuple[str, str]


def io_check_page(document: RunDocument) -> Page | None:
    """The page on a check of inputs and outputs; None when none was made.

    It has the verdict, the stages, and for those that failed what differs and what to set.
    """
    found = document.io_check
    if found is None:
        return None
    blocks: list[Block] = [_headline(found), spoken_facts(lambda: _stages(found))]
    blocks.append(TableBlock("stages", say("check_io.stages"), _STAGES, tuple(map(_row, found.stages))))
    for stage in found.stages:
        details = spoken_facts(lambda stage=stage: _details(stage))  # type: ignore[misc]
        if details.rows:
            blocks += [_heading(stage), details]
    corrections = tuple(
        (
            _name(stage),
            phrase_of(change.correction.setting),
            phrase_of(change.correction.value),
            phrase_of(change.correction.fields),
        )
        for stage in found.stages
        if stage.explanation is not None
        for change in stage.explanation.changes
        if change.correction is not None
    )
    if corrections:
        blocks.append(TableBlock("corrections", say("check_io.corrections"), _CORRECTIONS, corrections))
    blocks += [_pictures(stage) for stage in found.stages if stage.pictures]
    return Page("io", say("check_io.title"), (*blocks, *notes(found.notes)))


def _headline(check: IoCheck) -> Headline:
    failed = check.first_failure
    if failed is not None:

        def text() -> str:
            said = told("check_io.different", stage=_stage(failed))
            if failed.explanation is None:
                return said
            changes = told("check_io.named", count=len(failed.explanation.changes))
            return f"{said} {changes}" if changes.isascii() else f"{said}{changes}"

        return Headline("bad", in_all(text), word=say("check_io.word_different"))
    if any(stage.passed for stage in check.stages):
        many = sum(stage.passed is True for stage in check.stages)
        said = in_all(lambda: told("check_io.same", stages=count_of(many, "stage")))
        return Headline("good", said, word=say("check_io.word_same"))
    return Headline("open", say("check_io.not_compared"), word=say("check_io.word_not_compared"))


def _stages(check: IoCheck) -> Iterator[_Line]:
    for stage in check.stages:
        text = "--" if stage.passed is None else told(_WORDS[stage.passed])
        if stage.max_abs_error is not None:
            shape = told("check_io.largest", value=f"{stage.max_abs_error:.3g}")
            if math.isinf(stage.max_abs_error):
                finite = stage.mean_abs_error is None or not math.isnan(stage.mean_abs_error)
                shape = told("check_io.shapes_differ") if finite else told("check_io.not_finite")
            allowed = told("check_io.allowed", value=f"{stage.tolerance:g}")
            said = commas(shape, allowed, count_of(stage.samples, "sample"))
            if not stage.passed and stage.samples > 1 and stage.worst_sample:
                said = commas(said, told("check_io.worst", sample=stage.worst_sample))
            text += f"  {said}"
        yield _stage(stage), text


def _stage(stage: StageCheck) -> str:
    return told(f"check_io.stage_{stage.stage}")


def _heading(stage: StageCheck) -> Headline:
    explanation = stage.explanation
    if stage.passed is not False:
        return Headline("plain", say("check_io.heading", stage=_name(stage)))
    if explanation is None:
        return Headline("plain", say("check_io.unexplained", stage=_name(stage)))
    count = in_all(lambda: count_of(explanation.samples, "sample"))
    key = "check_io.explained" if explanation.exact else "check_io.almost"
    return Headline("plain", say(key, stage=_name(stage), samples=count))


def _details(stage: StageCheck) -> Iterator[_Line]:
    if stage.shapes and stage.passed is False:
        yield told("check_io.arrays"), shown(stage.shapes)
    if stage.explanation is not None:
        yield from _explained(stage.explanation)
    for label, steps in (("training", stage.training_from_original), ("deployed", stage.deployed_from_original)):
        if steps:
            yield (
                told(f"check_io.made_{label}"),
                told("check_io.from_original", steps=semicolons(*map(shown, steps))),
            )
    for number, text in enumerate(stage.excluded):
        yield ("" if number else told("check_io.excluded")), shown(text)
    for number, text in enumerate(stage.notes):
        yield ("" if number else told("terminal.note_label")), shown(text)


def _explained(explanation: Explanation) -> Iterator[_Line]:
    for number, change in enumerate(explanation.changes, 1):
        yield f"{number}.", shown(change.text)
        if change.correction is not None:
            setting, value = shown(change.correction.setting), shown(change.correction.value)
            yield f"   {told('check_io.set')}", told("check_io.setting", setting=setting, value=value)
            if change.correction.fields:
                yield "", shown(change.correction.fields)
    before = told("check_io.another_shape")
    if not math.isinf(explanation.before):
        before = told("check_io.most", value=f"{explanation.before:.3g}")
    yield (
        told("check_io.left"),
        told(
            "check_io.residual",
            before=before,
            after=f"{explanation.residual:.3g}",
            rms=f"{explanation.residual_rms:.3g}",
        ),
    )
    for text in explanation.alternatives:
        yield told("check_io.or"), shown(text)
    for text in explanation.notes:
        yield told("terminal.note_label"), shown(text)


def _pictures(stage: StageCheck) -> Pictures:
    """The worst sample of a stage on both sides."""
    return Pictures(
        tuple(
            Picture(
                say(
                    "check_io.picture",
                    side=say(f"check_io.{each.side}"),
                    stage=_name(stage),
                    sample=stage.worst_sample,
                ),
                base64.b64decode(each.png),
            )
            for each in stage.pictures
        )
    )


def _row(stage: StageCheck) -> tuple[Cell, ...]:
    found = stage.explanation
    explained = plain("") if found is None else phrase_of(joined(change.text for change in found.changes))
    return (
        _name(stage),
        stage.passed,
        stage.max_abs_error,
        stage.tolerance,
        stage.samples,
        phrase_of(stage.shapes),
        explained,
    )


def _name(stage: StageCheck) -> Phrase:
    return say(f"check_io.stage_{stage.stage}")
