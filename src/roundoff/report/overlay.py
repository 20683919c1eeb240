"""What a run knows of each node, for programs that draw the network."""

import math
from collections.abc import Sequence

from roundoff.core.document import RunDocument, json_text
from roundoff.messages.catalogue import Language
from roundoff.pages.blocks import Page, TableBlock, cell_text
from roundoff.report.network import node_colouring

__all__ = ["model_explorer_overlay", "node_facts"]

# From the best to the worst, as in our own drawing of the network.
_GOOD, _MIDDLE, _BAD = "#cfe8d5", "#fde7a8", "#f2938a"


def model_explorer_overlay(document: RunDocument) -> str | None:
    """The number by which our own drawing is coloured, as node data of Model Explorer; None without any.

    Its ONNX adapter calls nodes by their names, as we do. Infinite values cannot be drawn there and are left out.
    """
    colouring = node_colouring(document)
    values = {} if colouring is None else colouring.values
    drawn = {name: value for name, value in values.items() if value is not None and math.isfinite(value)}
    if colouring is None or not drawn:
        return None
    ends = (_BAD, _MIDDLE, _GOOD) if colouring.higher_is_better else (_GOOD, _MIDDLE, _BAD)
    stops = [{"stop": at / 2, "bgColor": colour} for at, colour in enumerate(ends)]
    return json_text({"results": {name: {"value": value} for name, value in drawn.items()}, "gradient": stops})


def node_facts(pages: Sequence[Page], *, language: Language = "en") -> dict[str, dict[str, str]]:
    """What the tables of a report say of each node: words and values, by its name.

    Where a node has several rows in a table, the first one counts.

    Args:
        pages: The report.
        language: Of the words.
    """
    found: dict[str, dict[str, str]] = {}
    for page in pages:
        for table in (block for block in page.blocks if isinstance(block, TableBlock)):
            place = next((at for at, column in enumerate(table.columns) if column.kind == "node"), None)
            if place is None:
                continue
            for row in table.rows:
                node = row[place]
                facts = found.setdefault(str(node), {}) if node else {}
                for at, (value, column) in enumerate(zip(row, table.columns, strict=True)):
                    text = cell_text(value, column).within(language)
                    if at != place and text:
                        facts.setdefault(f"{page.title.within(language)}: {column.label.within(language)}", text)
    return found
