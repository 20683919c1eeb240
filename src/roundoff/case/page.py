"""What is shown of a fault that was handed over: the reproducer, and the archive for a ticket."""

from collections.abc import Iterable, Iterator

from roundoff.case.bundle import Bundle
from roundoff.case.minimal import NotLocal
from roundoff.case.reproduce import Reproduction
from roundoff.messages.catalogue import bilingual, named, plain
from roundoff.messages.message import Remark, english, phrase_of, sanitize_for_display, some
from roundoff.messages.numbers import decibels_text, format_size
from roundoff.pages.blocks import Facts, Headline, Page

_NAMED = 6


def reproduction_page(made: Reproduction) -> Page:
    """Which nodes show the fault by themselves, and what running them showed."""
    finding = made.finding
    about = english(
        ": {nodes} {nodes:node|nodes} alone {nodes:shows|show} finding {number}{cause}",
        nodes=len(made.reproducer.nodes),
        number=finding.number,
        cause=f" ({finding.cause})" if finding.cause else "",
    )
    files = english("{files}, in {folder}", files=", ".join(made.files), folder=made.folder)
    lines = (*_lines(made), (english("files"), files), (english("next"), f"python {made.folder}/run.py"))
    word = english("REPRODUCED") if made.good else english("NOT VERIFIED")
    headline = Headline("good" if made.good else "bad", phrase_of(about), word=phrase_of(word))
    return _page("reproduce", headline, lines)


def not_reproduced_page(error: NotLocal) -> Page:
    """Why no part of the network shows the fault by itself."""
    about = english(": the fault is in no small part of the network")
    headline = Headline("open", phrase_of(about), word=phrase_of(english("NOT REPRODUCED")))
    return _page("reproduce", headline, [(english("why"), error.what), (english("next"), error.fix)])


def bundle_page(packed: Bundle) -> Page:
    """What was packed, or that nothing was."""
    lines = list(packed.lines)
    if not packed.shown:
        headline = Headline("bad", bilingual("case.not_packed"), word=bilingual("case.word_not_packed"))
        return _page("bundle", headline, lines)
    for place, (name, content) in enumerate(sorted(packed.members.items())):
        lines.append(("" if place else "files", f"{name}, {format_size(len(content))}"))
    about = bilingual("case.packed", file=packed.archive)
    return _page("bundle", Headline("good", about, word=bilingual("case.word_packed")), lines)


def _page(name: str, headline: Headline, lines: Iterable[tuple[str, Remark]]) -> Page:
    rows = []
    for label, text in sanitize_for_display(tuple(lines)):
        known = named(f"case.label_{label.replace(' ', '_')}")
        rows.append((phrase_of(label) if known is None else known, phrase_of(text)))
    return Page(name, plain(name), (headline, Facts(tuple(rows))))


def _lines(made: Reproduction) -> Iterator[tuple[str, str]]:
    found, checked = made.reproducer, made.verified
    names = some([f"{name} ({kind})" for name, kind in found.nodes], _NAMED)
    yield english("nodes"), english("{names}", names=names)
    yield english("where"), found.spot.text
    faulty, mended = decibels_text(found.faulty_db), decibels_text(found.mended_db)
    yield (
        english("alone"),
        english(
            "{faulty}, {mended} {mending}; fed with {fed_with}",
            faulty=faulty,
            mended=mended,
            mending=found.mending,
            fed_with=found.fed_with,
        ),
    )
    yield (
        "run.py",
        english(
            "{shows}, {passes}",
            shows=english("exit code 1 on what is observed")
            if checked.shows
            else english("does NOT show the fault"),
            passes=english("0 on what is expected")
            if checked.passes
            else english("and does NOT pass on what is expected"),
        ),
    )
    if found.complement is not None:
        usual = english("with all other quantizers on and these off")
        if found.stored:
            usual = english("with this tensor right")
        verdict = english("passes") if found.passes else english("does not pass: more is wrong than this")
        if found.unnoticed:
            verdict = english("both are right, the fault does not reach the outputs")
        yield (
            english("complement"),
            english(
                "output SQNR {after} {right}, {before} as it is: {verdict}",
                after=decibels_text(found.complement.after),
                right=found.right or usual,
                before=decibels_text(found.complement.before),
                verdict=verdict,
            ),
        )
    if found.alone is not None:
        yield "", english("{alone} with only these on", alone=decibels_text(found.alone))
