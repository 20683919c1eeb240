"""The check of a deployment against training: stages, and the transformation between both sides."""

import base64
import math
from collections.abc import Iterator

from roundoff import pages
from roundoff.core.document import RunDocument
from roundoff.messages.catalogue import (
    Phrase,
    bilingual,
    commas,
    count_of,
    in_all_languages,
    plain,
    semicolons,
    translate,
)
from roundoff.messages.message import joined, phrase_of, shown
from roundoff.studies.check_io.result import Correction, Explanation, IoCheck, StageCheck

_WORDS = {True: "check_io.pass", False: "check_io.fail"}
_Line = tuple[str, str]


def io_check_page(document: RunDocument) -> pages.Page | None:
    """The page on a check of inputs and outputs; None when none was made.

    It has the verdict, the stages, and for those that failed what differs and what to set.
    """
    found = document.io_check
    if found is None:
        return None
    blocks: list[pages.Block] = [_headline(found), pages.bilingual_facts(lambda: _stages(found))]
    blocks.append(pages.table("stages", "check_io.stages", _STAGES, found.stages))
    for stage in found.stages:
        details = pages.bilingual_facts(lambda stage=stage: _details(stage))  # type: ignore[misc]
        if details.rows:
            blocks += [_heading(stage), details]
    corrections = [
        (stage, change.correction)
        for stage in found.stages
        if stage.explanation is not None
        for change in stage.explanation.changes
        if change.correction is not None
    ]
    if corrections:
        blocks.append(pages.table("corrections", "check_io.corrections", _CORRECTIONS, corrections))
    blocks += [_pictures(stage) for stage in found.stages if stage.pictures]
    return pages.Page("io", bilingual("check_io.title"), (*blocks, *pages.notes(found.notes)))


def _headline(check: IoCheck) -> pages.Headline:
    failed = check.first_failure
    if failed is not None:

        def text() -> str:
            said = translate("check_io.different", stage=_stage(failed))
            if failed.explanation is None:
                return said
            changes = translate("check_io.named", count=len(failed.explanation.changes))
            return f"{said} {changes}" if changes.isascii() else f"{said}{changes}"

        return pages.Headline("bad", in_all_languages(text), word=bilingual("check_io.word_different"))
    if any(stage.passed is None and stage.samples for stage in check.stages):
        return pages.Headline(
            "open", bilingual("check_io.no_evidence"), word=bilingual("check_io.word_no_evidence")
        )
    if any(stage.passed for stage in check.stages):
        many = sum(stage.passed is True for stage in check.stages)
        said = in_all_languages(lambda: translate("check_io.same", stages=count_of(many, "stage")))
        return pages.Headline("good", said, word=bilingual("check_io.word_same"))
    return pages.Headline("open", bilingual("check_io.not_compared"), word=bilingual("check_io.word_not_compared"))


def _stages(check: IoCheck) -> Iterator[_Line]:
    for stage in check.stages:
        text = "--" if stage.passed is None else translate(_WORDS[stage.passed])
        if stage.max_abs_error is not None:
            shape = translate("check_io.largest", value=f"{stage.max_abs_error:.3g}")
            if math.isinf(stage.max_abs_error):
                finite = stage.mean_abs_error is None or not math.isnan(stage.mean_abs_error)
                shape = translate("check_io.shapes_differ") if finite else translate("check_io.not_finite")
            allowed = translate("check_io.allowed", value=f"{stage.tolerance:g}")
            said = commas(shape, allowed, count_of(stage.samples, "sample"))
            if not stage.passed and stage.samples > 1 and stage.worst_sample:
                said = commas(said, translate("check_io.worst", sample=stage.worst_sample))
            text += f"  {said}"
        yield _stage(stage), text


def _stage(stage: StageCheck) -> str:
    return translate(f"check_io.stage_{stage.stage}")


def _heading(stage: StageCheck) -> pages.Headline:
    explanation = stage.explanation
    if stage.passed is not False:
        return pages.Headline("plain", bilingual("check_io.heading", stage=_name(stage)))
    if explanation is None:
        return pages.Headline("plain", bilingual("check_io.unexplained", stage=_name(stage)))
    count = in_all_languages(lambda: count_of(explanation.samples, "sample"))
    key = "check_io.explained" if explanation.exact else "check_io.almost"
    return pages.Headline("plain", bilingual(key, stage=_name(stage), samples=count))


def _details(stage: StageCheck) -> Iterator[_Line]:
    if stage.shapes and stage.passed is False:
        yield translate("check_io.arrays"), shown(stage.shapes)
    if stage.explanation is not None:
        yield from _explained(stage.explanation)
    for label, steps in (("training", stage.training_from_original), ("deployed", stage.deployed_from_original)):
        if steps:
            yield (
                translate(f"check_io.made_{label}"),
                translate("check_io.from_original", steps=semicolons(*map(shown, steps))),
            )
    for number, text in enumerate(stage.excluded):
        yield ("" if number else translate("check_io.excluded")), shown(text)
    for number, text in enumerate(stage.notes):
        yield ("" if number else translate("terminal.note_label")), shown(text)


def _explained(explanation: Explanation) -> Iterator[_Line]:
    for number, change in enumerate(explanation.changes, 1):
        yield f"{number}.", shown(change.text)
        if change.correction is not None:
            setting, value = shown(change.correction.setting), shown(change.correction.value)
            yield f"   {translate('check_io.set')}", translate("check_io.setting", setting=setting, value=value)
            if change.correction.fields:
                yield "", shown(change.correction.fields)
    before = translate("check_io.another_shape")
    if not math.isinf(explanation.before):
        before = translate("check_io.most", value=f"{explanation.before:.3g}")
    yield (
        translate("check_io.left"),
        translate(
            "check_io.residual",
            before=before,
            after=f"{explanation.residual:.3g}",
            rms=f"{explanation.residual_rms:.3g}",
        ),
    )
    for text in explanation.alternatives:
        yield translate("check_io.or"), shown(text)
    for text in explanation.notes:
        yield translate("terminal.note_label"), shown(text)


def _pictures(stage: StageCheck) -> pages.Pictures:
    """The worst sample of a stage on both sides."""
    return pages.Pictures(
        tuple(
            pages.Picture(
                bilingual(
                    "check_io.picture",
                    side=bilingual(f"check_io.{each.side}"),
                    stage=_name(stage),
                    sample=stage.worst_sample,
                ),
                base64.b64decode(each.png),
            )
            for each in stage.pictures
        )
    )


def _changes(stage: StageCheck) -> Phrase:
    found = stage.explanation
    return plain("") if found is None else phrase_of(joined(change.text for change in found.changes))


def _name(stage: StageCheck) -> Phrase:
    return bilingual(f"check_io.stage_{stage.stage}")


# A terminal says it in lines.
_STAGES: list[pages.ColumnOf[StageCheck]] = [
    pages.column("stage", "check_io.stage", cell=_name, on="html csv"),
    pages.column("passed", "check_io.passed", "truth", on="html csv"),
    pages.column(
        "largest",
        "check_io.column_largest",
        "number",
        lambda stage: stage.max_abs_error,
        higher_is_better=False,
        on="html csv",
    ),
    pages.column("tolerance", "check_io.tolerance", "number", on="html csv"),
    pages.column("samples", "check_io.samples", "count", on="html csv"),
    pages.column("shapes", "check_io.shapes", cell=lambda stage: phrase_of(stage.shapes), on="html csv"),
    pages.column("explained", "check_io.column_explained", cell=_changes, on="html csv"),
]
_CORRECTIONS: list[pages.ColumnOf[tuple[StageCheck, Correction]]] = [
    pages.column("stage", "check_io.stage", cell=lambda row: _name(row[0]), on="html csv"),
    pages.column("setting", "check_io.column_setting", cell=lambda row: phrase_of(row[1].setting), on="html csv"),
    pages.column("value", "check_io.value", cell=lambda row: phrase_of(row[1].value), on="html csv"),
    pages.column("fields", "check_io.fields", cell=lambda row: phrase_of(row[1].fields), on="html csv"),
]
