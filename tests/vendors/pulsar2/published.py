"""Tables and files of the vendor's manual, where a checkout has them beside it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

_FOLDER = Path(__file__).resolve().parents[4] / "shared" / "vectors" / "pulsar2"


def published(name: str) -> str:
    """The text of a published file, lines without trailing blanks; the test is skipped without it."""
    path = _FOLDER / name
    if not path.is_file():
        pytest.skip(f"{name} is not beside this checkout")
    return "\n".join(line.rstrip() for line in path.read_text(encoding="utf-8").splitlines())


def table_rows(text: str) -> Iterator[list[str]]:
    """The cells of a table without wrapped lines."""
    for line in text.splitlines():
        if line.startswith("│"):
            yield [cell.strip() for cell in line.strip("│").split("│")]
