"""A finding of several places names all of them, and what was measured is told with its samples."""

from roundoff.core.document import RunDocument
from roundoff.diagnosis.result import Diagnosis, Finding, Measure
from roundoff.messages.catalogue import Phrase
from roundoff.messages.message import verbatim
from roundoff.pages.blocks import Headline, NetworkBlock, TableBlock
from roundoff.report.pages import all_pages
from tests.report.documents import chain, empty_document

NAMES = ("a", "b", "c")


def joint_document() -> RunDocument:
    measures = (
        Measure(verbatim("SQNR of 'y'"), "dB", 1.0, 20.0, samples=32),
        Measure(verbatim("top-1 accuracy"), "", 0.25, 0.75, samples=64),
    )
    joint = Finding(1, "clipping", (*NAMES, "clip"), NAMES, verbatim("cut off"), share=0.9, proven=True, places=3)
    found = Diagnosis(
        "m", verbatim("q"), "quantization", "culprits", verbatim("said"), (joint,), measures, samples=32
    )
    return empty_document(diagnosis=found, network=chain(*NAMES, "clip", "last"))


def _block(kind: type, name: str) -> object:
    found = [block for page in all_pages(joint_document()) for block in page.blocks if isinstance(block, kind)]
    return next(block for block in found if getattr(block, "id", name) == name)


def test_all_places_are_named() -> None:
    headline, table = _block(Headline, ""), _block(TableBlock, "findings")
    assert isinstance(headline, Headline)
    assert isinstance(table, TableBlock)
    assert headline.whole.en == "CULPRITS: said"
    row = dict(zip((column.id for column in table.columns), table.rows[0], strict=True))
    assert (row["node"], row["others"]) == ("a", "b, c")


def test_only_the_accused_are_coloured_and_their_cards_say_that_they_are_so_together() -> None:
    network = _block(NetworkBlock, "network")
    assert isinstance(network, NetworkBlock)
    assert {node.name: node.value for node in network.nodes if node.value is not None} == dict.fromkeys(NAMES, 0.9)
    cards = {node.name: text.en for node in network.nodes for _, text in node.facts}
    assert cards == dict.fromkeys(NAMES, "1: clipping; 3 places together make 90 % of the loss")


def test_a_metric_stands_beside_that_of_the_float_network_and_with_its_samples() -> None:
    table = _block(TableBlock, "loss")
    assert isinstance(table, TableBlock)
    kept = table.shown_on("csv")
    assert [column.id for column in kept.columns] == ["measure", "met", "expected", "in_float", "samples"]
    assert [row[2:] for row in kept.rows] == [(20.0, None, 32), (None, 0.75, 64)]
    told = [tuple(cell.en for cell in row if isinstance(cell, Phrase)) for row in table.shown_on("html").rows]
    assert told == [("SQNR of 'y', dB", "1.0", "20.0"), ("top-1 accuracy", "25.0 %", "75.0 %")]
