"""Options that cannot act together are refused: every pair of docs/reference/option-pairs.md."""

import re
import shlex
from pathlib import Path

import pytest
from benchmarks.options import BASES, VALUES, choices, said, scene

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "option-pairs.md"
ROW = re.compile(r"\| (\S+) \| `(.+?)` \| `(--\S+)` \| (.+) \|")
# What is told by the words alone, whatever the files hold, is typed; the rest takes a run of the network.
QUICK = re.compile(r"not allowed with|has no effect|says how to quantize|neither side|REFERENCE is a model")


def rows() -> list[tuple[str, str, str, str]]:
    found = [ROW.fullmatch(line) for line in PAGE.read_text(encoding="utf-8").splitlines()]
    return [(each[1], each[2], each[3], each[4]) for each in found if each is not None]


def test_the_page_has_every_command_that_is_tried() -> None:
    assert {command for command, *_ in rows()} == set(BASES)
    assert all(option in VALUES for _, _, option, _ in rows())


def test_pairs_that_cannot_act_together_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scene(tmp_path)
    typed = 0
    for command, beside, option, words in rows():
        if not QUICK.search(words):
            continue
        values: dict[str, str] = dict(choices(command))  # type: ignore[arg-type]
        base = shlex.split(beside)
        if beside.startswith("--") and beside in values:
            base = [*BASES[command][0], beside, values[beside]]
        code, _, err = said(command, *base, option, values[option], "--json")
        assert (code, words.split()[0] in " ".join(err.split())) == (2, True), (command, base, option, err)
        typed += 1
    assert typed > 30
