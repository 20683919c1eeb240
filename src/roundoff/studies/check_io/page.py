"""The check of a deployment against training: stages, and the transformation between both sides."""

import base64

from roundoff.core.document import RunDocument
from roundoff.messages.catalogue import Phrase, say
from roundoff.messages.sentences import known
from roundoff.pages.blocks import Block, Cell, Column, Headline, Page, Picture, Pictures, Table, notes
from roundoff.studies.check_io.result import StageCheck

__all__ = ["io_check_page"]

_STAGES = (
    Column("stage", say("io.stage"), "text"),
    Column("passed", say("io.passed"), "truth"),
    Column("largest", say("io.largest"), "number", higher_is_better=False),
    Column("tolerance", say("io.tolerance"), "number"),
    Column("samples", say("check_calibration.samples"), "count"),
    Column("shapes", say("io.shapes"), "text"),
    Column("explained", say("io.explained"), "text"),
)
_CORRECTIONS = (
    Column("stage", say("io.stage"), "text"),
    Column("setting", say("io.setting"), "text"),
    Column("value", say("io.value"), "text"),
    Column("fields", say("io.fields"), "text"),
)


def io_check_page(document: RunDocument) -> Page | None:
    """The page on a check of inputs and outputs; None when none was made."""
    found = document.io_check
    if found is None:
        return None
    first = found.first_failure
    text = say("io.passes") if first is None else say("io.fails", stage=_name(first))
    blocks: list[Block] = [Headline("good" if first is None else "bad", text)]
    blocks.append(Table("stages", say("io.stages"), _STAGES, tuple(map(_stage, found.stages))))
    corrections = tuple(
        (
            _name(stage),
            known(change.correction.setting),
            known(change.correction.value),
            known(change.correction.fields),
        )
        for stage in found.stages
        if stage.explanation is not None
        for change in stage.explanation.changes
        if change.correction is not None
    )
    if corrections:
        blocks.append(Table("corrections", say("io.corrections"), _CORRECTIONS, corrections))
    blocks += [_pictures(stage) for stage in found.stages if stage.pictures]
    said = [note for stage in found.stages for note in stage.notes]
    return Page("io", say("io.title"), (*blocks, *notes(said, found.notes)))


def _pictures(stage: StageCheck) -> Pictures:
    """The worst sample of a stage on both sides."""
    return Pictures(
        tuple(
            Picture(
                say("io.picture", side=say(f"io.{each.side}"), stage=_name(stage), sample=stage.worst_sample),
                base64.b64decode(each.png),
            )
            for each in stage.pictures
        )
    )


def _stage(stage: StageCheck) -> tuple[Cell, ...]:
    explained = "" if stage.explanation is None else "; ".join(each.text for each in stage.explanation.changes)
    return (
        _name(stage),
        stage.passed,
        stage.max_abs_error,
        stage.tolerance,
        stage.samples,
        known(stage.shapes),
        known(explained),
    )


def _name(stage: StageCheck) -> Phrase:
    return say(f"io_text.stage_{stage.stage}")
