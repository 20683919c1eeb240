"""The page of the documentation that shows what the suite measured."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.planted.answers import Answer
from benchmarks.planted.tables import confusion, families_table, faults_table, summary

__all__ = ["PAGE", "page", "write_page"]

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "planted-faults.md"

_HEAD = """# Planted faults: what `diagnose` finds

Networks are made in code, a fault is planted in each, and `roundoff diagnose` is run on the files that a user
would have. The truth is known, so every answer can be judged. Made by

```
python -m benchmarks planted --seeds {seeds} --write-docs
```

Families: plain convolutions, depthwise convolutions with ReLU6, residual blocks, branches with a detector's head,
a transformer, and a network of two inputs and two outputs; {seeds} networks of each. A fault is only planted where
it costs accuracy; *clean* cases are healthy quantizations and dumps of devices that do what they should.

A culprit counts as found when it is among the first three findings. Where several names are right (a scale that is
wrong on the device is a wrong dequantization and a wrong kernel), each of them counts.

"""


def page(answers: Sequence[Answer], *, seeds: int) -> str:
    """The whole page."""
    parts = [_HEAD.format(seeds=seeds), "## In short\n\n"]
    figures = [("", "reached", "of")]
    figures += [(name, str(good), str(total)) for name, (good, total) in summary(answers).items()]
    parts += [_markdown(figures), "\n## By fault\n\n", _markdown([row[:-1] for row in faults_table(answers)])]
    parts += ["\n## By family\n\n", _markdown(families_table(answers))]
    parts += ["\n## Which cause was taken for which\n\n", _markdown(confusion(answers))]
    return "".join(parts)


def write_page(answers: Sequence[Answer], *, seeds: int) -> None:
    """Replace the page in the documentation."""
    PAGE.write_text(page(answers, seeds=seeds), encoding="utf-8")


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *rest = rows
    lines = [head, ["---"] * len(head), *rest]
    return "".join("| " + " | ".join(cell.replace("\\", "\\\\") for cell in line) + " |\n" for line in lines)
