"""What a function gives back: it prints, shows itself in a notebook, gives rows, and writes files."""

import html
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import roundoff
from roundoff.core.document import load_document
from roundoff.demo import load_split, model_path
from roundoff.messages.catalogue import use_language
from roundoff.pages.blocks import Page, TableBlock

FEW = load_split("test")[0][:3]


@pytest.fixture(scope="module")
def outcome() -> "roundoff.Outcome[Any]":
    return roundoff.layers(model_path(), data=FEW, target="generic-int8")


def test_it_prints_what_the_command_prints(
    outcome: "roundoff.Outcome[Any]", capsys: Any, monkeypatch: Any
) -> None:
    from roundoff.cli import main

    lines = str(outcome).splitlines()
    assert lines[0] == outcome.verdict
    assert repr(outcome) == f"<Outcome: {outcome.verdict}>"
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in str(outcome)
    monkeypatch.setenv("COLUMNS", "80")
    source = model_path().parent / "samples.npy"
    main(["layers", str(model_path()), "--data", str(source), "--target", "generic-int8"])
    same = roundoff.layers(model_path(), data=source, target="generic-int8")
    # The table of the command is cut to rows that matter most.
    assert capsys.readouterr().out.splitlines()[:4] == str(same).splitlines()[:4]


def test_it_speaks_the_language_that_is_spoken(outcome: "roundoff.Outcome[Any]") -> None:
    with use_language("zh"):
        assert (
            outcome.verdict != roundoff.layers(model_path(), data=FEW, target="generic-int8").document.command[0]
        )
        assert not outcome.verdict.isascii()


def test_it_shows_itself_in_a_notebook(outcome: "roundoff.Outcome[Any]", tmp_path: Path) -> None:
    frame = outcome._repr_html_()
    assert frame.startswith('<iframe srcdoc="')
    assert "allow-same-origin" not in frame
    outcome.report(tmp_path / "page.html")
    page = html.unescape(frame.partition('srcdoc="')[2].partition('" style=')[0])
    assert page == (tmp_path / "page.html").read_text(encoding="utf-8")


def test_rows_are_plain_values(outcome: "roundoff.Outcome[Any]") -> None:
    rows = outcome.rows()
    assert len(rows) == len(outcome.result.rows)
    assert [row["node"] for row in rows] == [row.node for row in outcome.result.rows]
    scores = [row["accumulated_sqnr_db"] for row in rows]
    assert scores == [row.accumulated.sqnr_db for row in outcome.result.rows]
    json.dumps(rows)


def test_a_frame_needs_pandas(outcome: "roundoff.Outcome[Any]", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(roundoff.MissingExtra) as caught:
        outcome.to_frame()
    assert "roundoff[pandas]" in caught.value.fix
    fake = ModuleType("pandas")
    fake.DataFrame = list  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", fake)
    assert outcome.to_frame() == outcome.rows()


def test_it_is_saved_and_reported_once(outcome: "roundoff.Outcome[Any]", tmp_path: Path) -> None:
    written = outcome.save(tmp_path / "run")
    assert {path.name for path in written} == {"run.json", "layers.csv"}
    assert load_document(tmp_path / "run") == outcome.document
    with pytest.raises(roundoff.BadInput, match="already holds a result"):
        outcome.save(tmp_path / "run")
    outcome.save(tmp_path / "run", force=True)
    for name, start in (("a.md", "# "), ("a.json", "{"), ("a.html", "<!doctype html>")):
        outcome.report(tmp_path / name)
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)
        with pytest.raises(roundoff.BadInput, match="exists"):
            outcome.report(tmp_path / name)
    with pytest.raises(roundoff.BadInput, match="no report ends in"):
        outcome.report(tmp_path / "a.docx")
    with pytest.raises(roundoff.BadInput, match="no report format"):
        outcome.report(tmp_path / "b.html", format="htm")


def test_the_page_is_made_of_blocks(outcome: "roundoff.Outcome[Any]") -> None:
    assert isinstance(outcome.page, Page)
    # A report begins with cards; what it says below is the same page.
    first = next(each for each in outcome.pages if each.id == outcome.page.id)
    assert {block for block in outcome.page.blocks if isinstance(block, TableBlock)} <= set(first.blocks)


def test_what_has_no_section_has_a_page_all_the_same(tmp_path: Path) -> None:
    found = roundoff.targets("generic-int8")
    assert [row["name"] for row in found.rows()] == ["generic-int8"]
    assert "generic-int8" in str(found)
    assert "generic-int8" in found._repr_html_()
    made = roundoff.quantize(model_path(), data=FEW, target="generic-int8")
    made.report(tmp_path / "made.html")
    assert "stem/conv" in (tmp_path / "made.html").read_text(encoding="utf-8")


def test_a_repair_goes_on_from_the_diagnosis(tmp_path: Path) -> None:
    chip = model_path().parent / "tiny-chip.toml"
    images, labels = load_split("test")
    found = roundoff.diagnose(model_path(), data=images[:64], labels=labels[:64], target=chip)
    assert found.result.repair is None
    assert found.repaired is None
    # A row for each number before and after, though they stand behind the first screen.
    told = [(each, measure) for each in found.result.findings for measure in each.measures]
    assert told
    assert [(row["number"], row["cause"], row["before"], row["after"]) for row in found.rows()] == [
        (each.number, each.cause, measure.before, measure.after) for each, measure in told
    ]
    fixed = found.fix(tmp_path / "fixed")
    assert fixed.result.repair is not None
    assert fixed.repaired is not None
    assert fixed.result.repair.held_out > 0
    assert (tmp_path / "fixed" / "digits_fake_quant_model.onnx").is_file()
    assert load_document(tmp_path / "fixed").diagnosis == fixed.result
    # The diagnosis itself is what it was.
    assert found.result.repair is None
    before, after = (
        roundoff.samples(quantized=each, data=images[64:128]).result.samples[0].score or 0.0
        for each in (found.work.subject.quantized, fixed.repaired)
    )
    assert after > before


def test_the_worst_samples_can_be_stored(tmp_path: Path) -> None:
    found = roundoff.samples(model_path(), data=FEW, target="generic-int8")
    listed = found.copy_to(tmp_path / "worst", top=2)
    again = roundoff.outliers(model_path(), data=listed)
    assert again.result
    first = np.load(next((tmp_path / "worst").rglob("0001_*.npy")))
    np.testing.assert_array_equal(first[0], FEW[found.result.samples[0].index])


def test_an_outcome_is_true_where_all_is_well(tmp_path: Path) -> None:
    same = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.savez(tmp_path / "a.npz", y=same)
    np.savez(tmp_path / "b.npz", y=-same)
    good, bad = (roundoff.compare(tmp_path / "a.npz", tmp_path / each) for each in ("a.npz", "b.npz"))
    assert bool(good) is good.good is True
    assert bool(bad) is bad.good is False


def test_what_is_no_path_or_name_is_refused_with_a_fix(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", y=np.arange(12, dtype=np.float32))
    pair = tmp_path / "a.npz", tmp_path / "a.npz"
    wrong: Any = 3
    with pytest.raises(roundoff.BadInput, match="no profile 3"):
        roundoff.compare(*pair, profile=wrong)
    found = roundoff.compare(*pair)
    for save in (found.save, found.report):
        with pytest.raises(roundoff.BadInput, match="not a path") as caught:
            save(wrong)
        assert caught.value.fix
