"""Curves of accumulated error for people and programs: one page for terminal and files."""

import csv
import io
from dataclasses import replace

import pytest

from roundoff.messages.catalogue import Language
from roundoff.messages.message import message, verbatim
from roundoff.pages.blocks import View
from roundoff.pages.text_files import table_csv
from roundoff.report.pages import run_files
from roundoff.studies.accumulate.page import accumulation_page, curves_table
from roundoff.studies.accumulate.result import Accumulation
from tests.pages.shown import shown
from tests.report.curves import curves_of
from tests.report.documents import empty_document


def text_of(found: Accumulation, width: int = 80, *, most: int | None = None, language: Language = "en") -> str:
    return shown(accumulation_page(empty_document(accumulation=found), View(most)), width, language=language)


def test_the_whole_page() -> None:
    assert text_of(curves_of(), most=2) == (
        "WEIGHTS dominate (2 samples)\n"
        "  output     tensor3: weights 1.2 dB, activations exact, everything 1.2 dB\n"
        "  before it  weights 1.2 dB, activations exact, everything 1.2 dB (median of the\n"
        "             last 3 nodes)\n"
        "  base line  falls below 20 dB at block2/conv (Conv), cosine 0.50000 after\n"
        "             0.99900 at the node before\n"
        "  jumps at   block2/conv (Conv): 30.0 dB -> 1.2 dB\n"
        "\n"
        "curve      on at output   worst cosine, along the network\n"
        "all         1   0.50000 0.50000 ██▁▁\n"
        "weight      1   0.50000 0.50000 ██▁▁\n"
        "activation  1   1.00000 1.00000 ████\n"
        "\n"
        "# node        op       all  weight activation\n"
        "2 block2/conv Conv 0.50000 0.50000    1.00000\n"
        "3 block3/conv Conv 0.50000 0.50000    1.00000\n"
        "2 rows that matter less are left out; --top all shows them"
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"dominance": "both", "together": True}, "BOTH weights and activations matter"),
        ({"dominance": "both", "together": True}, "they lose much more than both alone"),
        ({"dominance": "neither"}, "NEITHER weights nor activations lose anything"),
        ({"dominance": "activations", "recovers": True}, "the outputs recover"),
        ({"falls_at": None, "jumps": ()}, "never falls below 20 dB"),
        ({"dominance": None, "at_output": None, "near_output": None}, "INCONCLUSIVE: at tensor3 1.2 dB with"),
        (
            {"dominance": None, "at_output": None, "near_output": None},
            "--only weight activation tells whose it is",
        ),
        ({"dominance": None, "exact_weights": True}, "what quantizing them cost cannot be seen: give FLOAT"),
        (
            {"dominance": None, "output": "", "at_output": None, "near_output": None},
            "no output holds anything that can be compared",
        ),
    ],
)
def test_other_verdicts(changes: dict[str, object], says: str) -> None:
    found = curves_of()
    verdict = replace(found.verdict, **changes)  # type: ignore[arg-type]
    assert says in " ".join(text_of(replace(found, verdict=verdict)).split())


def test_averages_are_shown_when_asked_for() -> None:
    text = text_of(replace(curves_of(), average=True))
    assert "cosine, averages, along the network" in text
    assert "3 block3/conv Conv 0.74950 0.74950    1.00000" in text


def test_five_hundred_nodes_and_thirty_curves_fit() -> None:
    found = curves_of(500, tuple(f"partial_qmodel_{number}" for number in range(30)))
    text = text_of(replace(found, notes=(verbatim("something"),)), most=20)
    assert "27 more curves in --csv and --json" in text
    assert "480 rows that matter less are left out" in text
    assert "note: something" in text
    assert len(text.splitlines()) < 70


def test_a_note_keeps_the_names_in_it_in_every_language() -> None:
    name = """conv (3x3); it's "odd" """
    note = message("accumulate.note_nonfinite", curve="weight", count=1, names=name)
    found = replace(curves_of(), notes=(note,))
    assert f"1 tensor with values that are not finite only then, which are left out of the scores: {name}" in str(
        note
    )
    assert name.strip() in text_of(found, 200, language="zh")


def test_hostile_names() -> None:
    found = curves_of(3, ("[red]=1+1[/red]", "=cmd"))
    node = replace(found.nodes[0], node="[bold]x[/bold]", tensor="=2+2")
    found = replace(found, nodes=(node, *found.nodes[1:]))
    assert "[bold]x[/bold]" in text_of(found, width=120)
    assert "[red]=1+1[/red]" in text_of(found, width=120)
    rows = list(csv.reader(io.StringIO(table_csv(curves_table(found)))))
    assert rows[1][3] == "'=2+2"
    assert "'=cmd value" in rows[0]


def test_all_of_it_as_csv() -> None:
    found = curves_of()
    rows = list(csv.DictReader(io.StringIO(run_files(empty_document(accumulation=found))["curves.csv"])))
    assert [row["node"] for row in rows] == [node.node for node in found.nodes]
    assert [float(row["weight value"]) for row in rows] == list(found.curves[1].values)
    assert [float(row["all average"]) for row in rows] == list(found.base_line.averages)
    assert rows[3]["activation sqnr_db"] == "inf"
    assert (rows[3]["output"], rows[0]["output"], rows[0]["metric"]) == ("yes", "no", "cosine")
    assert rows[0]["all worst_sample"] == "s1"


def test_what_has_no_score_is_empty() -> None:
    found, empty = curves_of(3, ()), (None, None, None)
    nothing = replace(found.curves[0], values=empty, averages=empty, worst=empty, sqnr_db=empty)
    verdict = replace(found.verdict, falls_at=None, jumps=(), output="", dominance=None)
    found = replace(found, curves=(nothing,), verdict=verdict)
    assert "0 block0/conv Conv" in text_of(found)
    assert next(csv.DictReader(io.StringIO(table_csv(curves_table(found)))))["all value"] == ""
