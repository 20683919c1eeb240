"""A diagnosis for people."""

import csv
import io
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from roundoff.diagnosis.page import diagnosis_page, measure_text
from roundoff.diagnosis.result import Diagnosis, DiagnosisKind, Finding, Measure, Remedy, Repair, RepairStep
from roundoff.messages.catalogue import use_language
from roundoff.messages.message import message, verbatim
from roundoff.pages.terminal import terminal_page
from roundoff.report.pages import run_files
from tests.diagnosis.test_cards import FOUND, REPAIR
from tests.report.documents import empty_document

LONG = "model/backbone/stage4/block2/branch_with_a_rather_long_name/conv"


def shown(found: Diagnosis) -> list[str]:
    page = diagnosis_page(empty_document(diagnosis=found))
    assert page is not None
    console = Console(file=io.StringIO(), width=80)
    console.print(terminal_page(page))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined, no-any-return]


def findings_csv(found: Diagnosis) -> str:
    return run_files(empty_document(diagnosis=found))["findings.csv"]


def finding(number: int, *, proven: bool = True) -> Finding:
    measure = Measure(verbatim("SQNR of 'logits'"), "dB", 2.0, 24.0, samples=32)
    remedy = Remedy(verbatim(f"set the range of {LONG!r} to -3.1 .. 6.2"), "free")
    what = f"{LONG!r} (Conv) is cut off: its range is 0 .. 1, its values reach -3.1 .. 6.2 (12.0% are outside)"
    changed = f"the range of {LONG!r} (Conv) widened from 0 .. 1 to -3.1 .. 6.2, same bits"
    return Finding(
        number,
        "clipping",
        (LONG,),
        (LONG,),
        verbatim(what),
        {},
        verbatim(changed),
        (measure,),
        0.125,
        remedy,
        proven,
    )


def diagnosis(kind: DiagnosisKind, *findings: Finding) -> Diagnosis:
    measures = (
        Measure(verbatim("SQNR of 'logits'"), "dB", 2.0, 24.0),
        Measure(verbatim("top-1 accuracy"), "", 0.5, 0.9),
    )
    return Diagnosis(
        "m.onnx",
        verbatim("q.onnx"),
        "quantization",
        kind,
        verbatim("said"),
        findings,
        measures,
        (LONG,) * 9,
        samples=32,
    )


def test_many_findings_fit_a_screen() -> None:
    lines = shown(diagnosis("culprits", *(finding(number) for number in range(1, 4))))
    assert lines[0] == "CULPRITS: said"
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    text = " ".join(" ".join(lines).split())
    assert (
        "'logits' 2.0 dB (24.0 with the best ranges), top-1 accuracy 50.0 % (90.0 % in float); 32 samples" in text
    )
    assert "2.0 -> 24.0 dB" in text
    assert "victims 9 tensors, " in text
    assert "first: error inherited from inputs" in text


def test_twenty_findings_fit_a_larger_screen() -> None:
    steps = (
        "roundoff diagnose m.onnx --fix -o repaired",
        "roundoff reproduce repaired",
        "roundoff bundle repaired",
    )
    found = replace(diagnosis("culprits", *(finding(number) for number in range(1, 21))), next_steps=steps)
    lines = shown(found)
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert any("and 13 more findings: see --json" in line for line in lines)


def test_a_proof_says_why_it_begins_elsewhere_than_the_loss() -> None:
    whole = Measure(verbatim("SQNR of 'logits'"), "dB", 2.0, 24.0, samples=32)
    for measure, said in (
        (replace(whole, before=1.0, samples=8), "1.0 -> 24.0 dB (on 8 samples)"),
        (whole, "2.0 -> 24.0 dB remedy"),
    ):
        first = replace(finding(1), measures=(measure,))
        found = replace(diagnosis("culprits", first, finding(2)), measures=(whole,))
        assert said in " ".join(" ".join(shown(found)).split())


@pytest.mark.parametrize(
    ("after", "reached", "line"),
    [
        (0.89, True, "REPAIRED: top-1 accuracy 50.0 % -> 89.0 % (90.0 % in float)"),
        (0.7, False, "BETTER: top-1 accuracy 50.0 % -> 70.0 % (90.0 % in float)"),
        (0.5, False, "NOT REPAIRED: top-1 accuracy 50.0 % -> 50.0 % (90.0 % in float)"),
    ],
)
def test_a_repair_is_told_in_a_line(after: float, reached: bool, line: str) -> None:
    measure = Measure(verbatim("top-1 accuracy"), "", 0.5, after)
    found = replace(
        diagnosis("culprits", finding(1)), repair=Repair((), (measure,), reached, held_out=40, gain=(0.1, 0.3))
    )
    assert shown(found)[1] == line
    unproven = replace(found, repair=Repair((), (measure,)))
    assert shown(unproven)[1].startswith("BETTER, NOT PROVEN: " if after > 0.5 else "NOT REPAIRED: ")


@pytest.mark.parametrize(
    ("kind", "word"),
    [("healthy", "HEALTHY"), ("distributed", "DISTRIBUTED"), ("elsewhere", "NOT A QUANTIZATION PROBLEM")],
)
def test_each_verdict_has_its_word(kind: DiagnosisKind, word: str) -> None:
    assert shown(diagnosis(kind))[0].startswith(f"{word}: ")


def test_what_is_only_suspected_is_said_to_be_so() -> None:
    text = " ".join(" ".join(shown(diagnosis("healthy", finding(1, proven=False)))).split())
    assert "suspected not proven: clipping, " in text
    assert "proof" not in text


def test_measures_are_told_with_their_unit() -> None:
    assert measure_text(Measure(verbatim("SQNR"), "dB", 1.23, float("inf"))) == "SQNR 1.2 dB -> exact"
    assert (
        measure_text(Measure(message("diagnosis.measure_top"), "", 0.5, 1.0))
        == "top-1 agreement 50.0 % -> 100.0 %"
    )


def test_steps_of_a_repair_are_told_in_a_line_each() -> None:
    """What helped and what failed; what was no better stands in the report."""
    measure = Measure(verbatim("SQNR"), "dB", 1.0, 9.0)
    broken = message("diagnosis.repair_failed", reason="KeyError")
    steps = (
        RepairStep(verbatim("widen it"), "free", 1, measure, kept=True),
        RepairStep(verbatim("16 bits"), "16 bit", 2, measure, kept=False, why=verbatim("no better")),
        RepairStep(verbatim("smooth"), "free", 2, measure, kept=False, why=broken),
    )
    found = replace(diagnosis("culprits"), repair=Repair(steps, (measure,), used=24, held_out=8, gain=(7.0, 9.0)))
    lines = shown(found)
    assert lines[1].startswith("BETTER: SQNR 1.0 -> 9.0 dB")
    lines = lines[next(at for at, line in enumerate(lines) if line.startswith("  kept")) - 1 :]
    assert lines[1].split() == ["kept", "SQNR", "1.0", "->", "9.0", "dB:", "widen", "it"]
    assert lines[2].split() == ["refused", "smooth:", "failed:", "KeyError"]
    assert "no better" not in " ".join(lines)


def test_all_findings_are_in_the_csv() -> None:
    rows = findings_csv(diagnosis("culprits", finding(1), finding(2))).splitlines()
    assert len(rows) == 3
    assert rows[0].startswith("number,proven,cause,")
    assert rows[1].startswith("1,yes,clipping,")


def test_numbers_measured_on_other_samples_say_on_how_many() -> None:
    measures = (
        Measure(verbatim("SQNR of 'logits'"), "dB", 2.0, 24.0, samples=32),
        Measure(verbatim("top-1 accuracy"), "", 0.5, 0.9, samples=64),
    )
    text = " ".join(" ".join(shown(replace(diagnosis("culprits"), measures=measures))).split())
    assert (
        "(24.0 with the best ranges), on 32 samples; top-1 accuracy 50.0 % (90.0 % in float), on 64 samples"
        in text
    )


def test_the_other_places_of_a_finding_are_named() -> None:
    names = tuple(f"conv{number}" for number in range(9))
    joint = replace(finding(1), nodes=(*names, "clip"), places=9)
    text = " ".join(" ".join(shown(diagnosis("culprits", joint))).split())
    assert "1 conv0, conv1, conv2 and 6 more (12 % of the loss)" in text
    assert "clip " not in text


def test_findings_told_in_short_say_where_the_rest_is() -> None:
    lines = shown(diagnosis("culprits", *(finding(number) for number in range(1, 7))))
    text = " ".join(" ".join(lines).split())
    assert "(in full: --html)" in text


def test_no_name_in_the_table_of_findings_is_run_as_a_formula() -> None:
    formula = '=HYPERLINK("http://x","a")'
    finding = Finding(1, "clipping", (formula,), (formula,), verbatim(formula))
    found = Diagnosis("a", verbatim("b"), "quantization", "culprits", verbatim("c"), findings=(finding,))
    (row,) = csv.DictReader(io.StringIO(findings_csv(found)))
    assert (row["node"], row["tensor"], row["summary"]) == (f"'{formula}",) * 3


def test_a_screen_has_the_score_the_proof_with_its_controls_and_what_is_next() -> None:
    steps = ("roundoff diagnose net.onnx --fix -o out", "roundoff bundle out")
    found = replace(FOUND, repair=replace(REPAIR, doubts=(verbatim("10 samples are few"),)), next_steps=steps)
    lines = shown(found)
    assert lines[0] == "CULPRITS: Outlier channels share one scale, at conv; output SQNR -0.1 dB"
    assert lines[1] == "REPAIRED: top-1 accuracy 10.0 % -> 90.0 % (90.0 % in float), 10 held-out samples"
    assert [" ".join(line.split()) for line in lines[3:7]] == [
        "top-1 accuracy 95 % output SQNR, n=2",
        "Float 90.0 % 60..98 %",
        "Quantized 10.0 % 2..40 % -0.1 dB",
        "Repaired 90.0 % 60..98 % 18.3 dB",
    ]
    # The repaired network stands in the table; bars are shares of the largest value.
    at = next(at for at, line in enumerate(lines) if "as quantized" in line)
    told = [" ".join(line.split()) for line in lines[at : at + 5]]
    assert [line.replace("#", "").strip() for line in told] == [
        "as quantized -0.1 dB |",
        "1 place changed 10.4 dB |",
        "control: 4 other places 0.1 dB | from -0.2, 8 samples",
        "control: other half 9.5 dB | from -0.5, 1 sample",
        "expected 11.7 dB | ^",
    ]
    bars = [line.count("#") for line in told]
    assert bars[0] == 0 < bars[3] <= bars[1] < lines[at + 4].index("^") - lines[at + 4].index("|")
    assert "top-1 accuracy 12.5 % -> 87.5 %, 2 of 2 samples better" in " ".join(" ".join(lines).split())
    assert any(line.split() == ["note", "10", "samples", "are", "few"] for line in lines)
    assert len(lines) <= 30
    with use_language("zh"):
        chinese = shown(found)
    assert len(chinese) <= 30
    assert max(map(cell_len, [*lines, *chinese])) <= 80


def test_without_a_control_a_proof_is_a_sentence_and_the_verdict_has_its_numbers() -> None:
    found = replace(FOUND, findings=(replace(FOUND.findings[0], control=None),), scores=())
    lines = shown(found)
    assert lines[0] == "CULPRITS: conv makes most of the loss"
    assert "a scale for each channel: SQNR of 'y' -0.1 -> 10.4 dB" in " ".join(" ".join(lines).split())
    assert not any("|" in line for line in lines)
