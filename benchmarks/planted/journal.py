"""Answers on disk, so that a run that was stopped goes on where it was."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.planted.answers import Answer


class Journal:
    """A file of answers, one in each line; good for one version of the program only.

    Args:
        path: The file; None to remember nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known = {answer.case: answer for answer in self._read()}

    def __contains__(self, case: str) -> bool:
        return case in self._known

    def __getitem__(self, case: str) -> Answer:
        return self._known[case]

    def add(self, answer: Answer) -> None:
        """Remember an answer."""
        self._known[answer.case] = answer
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(answer)) + "\n")

    def _read(self) -> Iterator[Answer]:
        if self._path is None or not self._path.exists():
            return
        for line in self._path.read_text(encoding="utf-8").splitlines():
            fields: dict[str, Any] = json.loads(line)
            fields |= {key: tuple(value) for key, value in fields.items() if isinstance(value, list)}
            yield Answer(**fields)
