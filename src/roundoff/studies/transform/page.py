"""What transforms and corrections brought, who took part, and whether they were kept."""

from collections.abc import Iterator

from roundoff.core.document import RunDocument
from roundoff.messages.catalogue import bilingual, commas, count_of, in_all_languages, plain, translate
from roundoff.messages.message import phrase_of, shown
from roundoff.messages.numbers import score_text
from roundoff.pages.blocks import Column, Headline, Page, TableBlock, View, bilingual_facts, notes
from roundoff.pages.cards import HeroCard, NetworkRole, first_screen, score_figure
from roundoff.pages.coverage import doubt_line, judged_line
from roundoff.quantize.page import agreement_line
from roundoff.quantize.step_report import StepReport, TransformReport, TransformScore

_COLUMNS = (
    Column("step", bilingual("transform.step"), "text"),
    Column("kind", plain("kind"), "text", on=("csv",)),
    Column("node", bilingual("common.node"), "node"),
    Column("role", bilingual("transform.role"), "text", on=("html", "csv")),
    Column("what", bilingual("transform.done"), "text"),
)
_Line = tuple[str, str]


def transform_page(document: RunDocument, view: View = View()) -> Page | None:  # noqa: B008 - frozen
    """The page on transforms; None when there were none.

    Args:
        document: The run.
        view: Nodes of each step in a terminal.
    """
    report = document.transform
    if report is None:
        return None
    said = [note for step in report.steps for note in step.notes]
    headline = _headline(report)
    screen = _first_screen(document, report, headline)
    blocks = (screen, headline, bilingual_facts(lambda: _lines(report)), _table(report, view))
    return Page("transform", bilingual("transform.title"), (*blocks, *notes(said, report.notes)))


def _first_screen(document: RunDocument, found: TransformReport, headline: Headline) -> HeroCard:
    """What the outputs keep without the steps and with them, and the user's metric where there is one."""
    detail = in_all_languages(lambda: count_of(found.samples, "sample"))
    sides: tuple[tuple[str, NetworkRole], ...] = (("before", "quantized"), ("after", "repaired"))
    figures = [
        score_figure(bilingual(f"transform.{word}"), role, metric="sqnr_db", value=value, detail=detail)
        for (word, role), value in zip(sides, found.sqnr_db, strict=True)
        if found.changed
    ]
    return first_screen(document, headline, scores=figures, covered=found.coverage)


def _headline(found: TransformReport) -> Headline:
    # What was only added to make room is not worth a word when there was room already.
    names = ", ".join(step.name for step in found.steps if step.taken or step.name != "explicit_bias")
    before, after = found.sqnr_db
    if not found.changed:
        word = bilingual("transform.word_no_evidence" if found.doubts else "transform.word_nothing")
        return Headline("open", bilingual("transform.nothing", names=names), word=word)
    # As many digits as it takes to see which one is better.
    differing = (count for count in (1, 2, 3) if f"{before:.{count}f}" != f"{after:.{count}f}")
    digits = next(differing, 1)
    gain = in_all_languages(
        lambda: commas(
            "" if found.score is None else _score(found.score),
            f"SQNR {before:.{digits}f} -> {after:.{digits}f} dB",
            "" if found.gain is None else _gain(found.gain),
        )
    )
    if found.kept and (found.doubts or found.chance):
        text = bilingual("transform.chance" if found.chance else "transform.no_evidence", names=names, gain=gain)
        return Headline("open", text, word=bilingual("transform.word_no_evidence"))
    kind = "kept" if found.kept else "undone"
    said = "chance" if found.chance else kind
    text = bilingual(f"transform.{said}", names=names, gain=gain)
    return Headline("good" if found.kept else "bad", text, word=bilingual(f"transform.word_{kind}"))


def _gain(gain: tuple[float, float]) -> str:
    low, high = (f"{end:+.1f}" for end in gain)
    return translate("transform.gain", low=low, high=high)


def _score(score: TransformScore) -> str:
    before, after, reference = (
        score_text(score.name, value) for value in (score.before, score.after, score.reference)
    )
    return translate("transform.score", name=score.name, before=before, after=after, reference=reference)


def _lines(found: TransformReport) -> Iterator[_Line]:
    for word, agreements in (("before", found.before), ("after", found.after)):
        for index, agreement in enumerate(agreements):
            yield ("" if index else translate(f"transform.{word}")), agreement_line(agreement)
    origin = "transform.on_unseen" if found.unseen else "transform.on_calibrated"
    samples = count_of(found.samples, "sample")
    judged = translate(origin, samples=samples, target=found.target, method=found.method)
    yield translate("transform.judged"), judged
    if found.doubts and found.coverage is not None:
        yield translate("coverage.label"), judged_line(found.coverage)
    for at, doubt in enumerate(found.doubts):
        yield "" if at else translate("coverage.label_doubt"), doubt_line(doubt)
    if found.changed:
        nothing = translate("transform.adds_nothing")
        yield translate("transform.adds"), nothing if found.added is None else shown(found.added)
    for step in found.steps:
        if step.taken or step.name != "explicit_bias":
            yield step.name, _who(step)


def _who(step: StepReport) -> str:
    options = ", ".join(f"{name}={value}" for name, value in step.options.items())
    text = translate("transform.took_part", count=len(step.taken))
    return translate("transform.options", text=text, options=options) if options else text


def _table(report: TransformReport, view: View) -> TableBlock:
    rows = [
        (step.name, step.kind, each.node, each.role, phrase_of(each.text))
        for step in report.steps
        for each in step.taken
    ]
    shown: list[int] = []
    place = 0
    for step in report.steps:
        shown += range(place, place + len(step.taken[: view.most]))
        place += len(step.taken)
    left = len(rows) - len(shown)
    return TableBlock(
        "transforms",
        bilingual("transform.nodes"),
        _COLUMNS,
        tuple(rows),
        file="transform.csv",
        most=len(shown),
        order=tuple(shown),
        left_out=bilingual("transform.more", count=left) if left else plain(""),
    )
