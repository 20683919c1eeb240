"""The pages on Python: their cells run in order, and print what they show."""

import re
from pathlib import Path

import pytest

import roundoff
from roundoff.api import FUNCTIONS

ROOT = Path(__file__).resolve().parents[2]
CELL = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)


def run_cells(page: Path, capsys: pytest.CaptureFixture[str]) -> int:
    """Run the cells of a page; a text behind one is what it prints, as far as it goes."""
    names: dict[str, object] = {}
    printed, cells = "", 0
    for kind, text in CELL.findall(page.read_text(encoding="utf-8")):
        if kind == "python":
            exec(compile(text, str(page), "exec"), names)  # noqa: S102 - the page's own example
            printed, cells = capsys.readouterr().out, cells + 1
        elif cells:
            said = " ".join(printed.split())
            for line in text.splitlines():
                assert all(word in said for word in line.split()), f"{page.name}: {line!r} is {said!r}"
    return cells


@pytest.mark.parametrize("name", ["tutorials/python.md", "reference/api.md"])
def test_the_cells_of_a_page_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_cells(ROOT / "docs" / name, capsys) > 5


def test_the_reference_has_every_function() -> None:
    page = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^### `(\w+)`", page, re.MULTILINE)) == set(FUNCTIONS)
    assert set(FUNCTIONS) <= set(roundoff.__all__)
