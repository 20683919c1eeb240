"""The page of the documentation that shows what the suite measured."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.planted.answers import BROKEN_DB, Answer
from benchmarks.planted.repairs import OTHERS
from benchmarks.planted.suite import Choice
from benchmarks.planted.tables import (
    confusion,
    dumps_table,
    families_table,
    faults_table,
    repairs_table,
    summary,
)

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "planted-faults.md"

_HEAD = """# Planted faults: what `diagnose` finds

Networks are made in code, a fault is planted in each, and roundoff is run on the files that a user would have. The
truth is known, so every answer can be judged. Made by

```
python -m benchmarks planted --seeds {seeds}{options} --write-docs
```

Families: plain convolutions, depthwise convolutions with ReLU6, residual blocks, branches with a detector's head,
a transformer, a network of two inputs and two outputs, residual blocks with squeeze-and-excitation and HardSwish,
a U-Net of two outputs, a recurrent network on rows, a vision transformer with a mask, and some of these as PyTorch
and Paddle export them. A fault is only planted where it costs accuracy; *clean* cases are healthy quantizations,
dumps of devices that do what they should (8 bits, 16-bit activations, half precision, float), and for `check-io`
inputs that differ by noise alone.

A culprit counts as found when it is among the first three findings. Where several names are right (a scale that is
wrong on the device is a wrong dequantization and a wrong kernel), each of them counts. A board is *broken* when an
output of it has {broken:.0f} dB or less; then neither `diagnose` may say HEALTHY nor `compare` PASS. What
`diagnose --fix` and `tune` claim is measured again on {others} samples that they did not have: a figure in
decibels has to be right within 1 dB either way, "at least" may not be too much; a share of samples may be 1 %
less, or what its own interval says.

These tables are of {count} cases{sample}.

"""
# What a part of all cases allows.
_SAMPLE = ", a sample: most rows have few trials and show what was seen, not how often it is so"


def page(answers: Sequence[Answer], choice: Choice) -> str:
    """The whole page."""
    seeds = list(choice.seeds)
    told = str(len(seeds)) if seeds[0] == 0 else f"{seeds[0]}-{seeds[-1]}"
    options = "" if choice.only == "*" else f" --only '{choice.only}'"
    options += "" if choice.part[1] == 1 else f" --part {choice.part[0]}/{choice.part[1]}"
    sample = "" if choice.part[1] == 1 else _SAMPLE
    head = _HEAD.format(
        seeds=told, options=options, broken=BROKEN_DB, others=OTHERS, count=len(answers), sample=sample
    )
    parts = [head, "## In short\n\n"]
    figures = [("", "reached", "of")]
    figures += [(name, str(good), str(total)) for name, (good, total) in summary(answers).items()]
    parts.append(_markdown(figures))
    for title, table in (
        ("By names in the dump", dumps_table(answers, "style")),
        ("By kind of dump", dumps_table(answers, "way")),
        ("Repairs on other samples", repairs_table(answers)),
        ("By fault", [row[:-1] for row in faults_table(answers)]),
        ("By family", families_table(answers)),
        ("Which cause was taken for which", confusion(answers)),
    ):
        parts += [f"\n## {title}\n\n", _markdown(table)]
    return "".join(parts)


def write_page(answers: Sequence[Answer], choice: Choice) -> None:
    """Replace the page in the documentation."""
    PAGE.write_text(page(answers, choice), encoding="utf-8")


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *rest = rows
    lines = [head, ["---"] * len(head), *rest]
    return "".join("| " + " | ".join(cell.replace("\\", "\\\\") for cell in line) + " |\n" for line in lines)
