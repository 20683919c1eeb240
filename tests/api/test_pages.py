"""The pages on Python: their cells run in order, and print what they show."""

import json
import re
from pathlib import Path

import pytest

import roundoff
from roundoff.api import FUNCTIONS
from roundoff.cli import COMMANDS, main

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


def test_every_command_is_a_function() -> None:
    """Vendors' commands have their functions in `roundoff.vendors`, those of suites in `roundoff.suite`; the demo
    is a story told in a terminal; completion is a shell's."""
    others = {"ascend", "horizon", "amct", "pulsar2", "suite", "demo", "completion"}
    for name in {each.replace("-", "_") for each in COMMANDS} - others:
        assert name in roundoff.__all__
        assert callable(getattr(roundoff, name))


def test_the_machine_is_checked_as_by_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["self-check", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["summary"] == str(roundoff.self_check().result.summary())


def test_runs_are_served_until_interrupted(tmp_path: Path) -> None:
    asked = []

    def announced(address: str) -> None:
        asked.append(address)
        raise KeyboardInterrupt

    roundoff.serve(tmp_path, announce=announced)
    assert asked[0].startswith("http://")
    for folder, port in ((tmp_path / "none", 0), (5, 0), (tmp_path, "x")):
        with pytest.raises(roundoff.BadInput) as caught:
            roundoff.serve(folder, port=port, announce=announced)  # type: ignore[arg-type]
        assert caught.value.fix
