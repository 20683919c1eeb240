"""What commands say in Chinese holds no English prose: names, commands and vendors' own lines alone."""

import json
import re
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"
# Three words in a row that no name, option, path or command is made of.
PROSE = re.compile(r"(?<![\w/.{\[-])(?:[a-z]{2,} ){2,}[a-z]{2,}(?![\w/.}\]=-])")
# Commands to be typed, and lines of the vendors' tools, which scripts of their users look for.
ALLOWED = re.compile(
    r"roundoff [a-z-]+ |^ *(save|export) [a-z ]+ \[?|sensitivity analysis to|qairt-converter|hb_mapper makertbin"
    r"|File\(s\) Loaded|quant\.axmodel export success|hardswish, hardsigmoid|model_deploy"
)


def chinese_lines() -> list[tuple[str, str]]:
    found = []
    for path in sorted(DATA.glob("*.json")):
        for view, parts in json.loads(path.read_text(encoding="utf-8"))["text"].items():
            if view.startswith("zh"):
                found += [(path.stem, line) for lines in parts.values() for line in lines]
    return found


def test_there_are_chinese_lines() -> None:
    assert len(chinese_lines()) > 1000


@pytest.mark.parametrize("case", sorted({case for case, _ in chinese_lines()}))
def test_no_english_prose_in_chinese(case: str) -> None:
    lines = [line for name, line in chinese_lines() if name == case]
    assert [line for line in lines if PROSE.search(line) and not ALLOWED.search(line)] == []
