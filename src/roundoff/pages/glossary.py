"""The glossary: every number, column and verdict that the other pages use and the catalogue explains."""

import re
from collections.abc import Iterator, Sequence

from roundoff.messages.catalogue import Phrase, bilingual, explained, named
from roundoff.pages.blocks import Column, Facts, Headline, Page, Paragraph, TableBlock


def glossary_page(pages: Sequence[Page]) -> Page | None:
    """The page of meanings; None where nothing needs one.

    Args:
        pages: Those whose words are explained.
    """
    found = dict.fromkeys(_terms(pages))
    if not found:
        return None
    return Page(
        "glossary", bilingual("glossary.title"), (Paragraph(bilingual("glossary.intro")), Facts(tuple(found)))
    )


def _terms(pages: Sequence[Page]) -> Iterator[tuple[Phrase, Phrase]]:
    for page in pages:
        for block in page.blocks:
            if isinstance(block, Headline):
                meaning = explained(block.term)
                if meaning is not None:
                    yield bilingual(f"glossary.word_{block.term}"), meaning
            elif isinstance(block, TableBlock):
                yield from _causes(block)
                for column in block.shown_on("html").columns:
                    meaning = column_meaning(block, column)
                    if meaning is not None:
                        yield column.label, meaning
        yield from _terms(page.sections)


def _causes(table: TableBlock) -> Iterator[tuple[Phrase, Phrase]]:
    """The causes that a table of findings names."""
    at = next((place for place, column in enumerate(table.columns) if column.id == "cause"), None)
    for row in table.rows if at is not None else ():
        cause = row[at] if at is not None else None
        meaning = named(f"terms.cause_{cause.en}") if isinstance(cause, Phrase) else None
        if isinstance(cause, Phrase) and meaning is not None:
            yield cause, meaning


def column_meaning(table: TableBlock, column: Column) -> Phrase | None:
    """What a column means, in one sentence; None where its heading says it all."""
    # Tables of several kinds, and columns of several curves or levels, differ in a number or word at their end.
    kind, name = table.id.partition("-")[0], re.sub(r"_\d+$", "", column.id)
    return column.help or explained(f"{kind}__{name}") or explained(name)
