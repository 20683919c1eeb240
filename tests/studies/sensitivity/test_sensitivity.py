"""What is said of rankings."""

import pytest
from rich.console import Console

from roundoff.measure.metrics import get_metric
from roundoff.studies.sensitivity.result import Effort, SensitivityReport
from roundoff.studies.sensitivity.summary import judge
from roundoff.studies.sensitivity.terminal import sensitivity_verdict
from tests.studies.sensitivity.test_sensitivity_report import ranking


def verdict_of(values: list[float]) -> str:
    rows = tuple(ranking(values, [0.001] * (len(values) - 1) + [None]))
    report = SensitivityReport(
        reference="m.onnx",
        mode="alone",
        metrics=("sqnr_db",),
        outputs=("y",),
        samples=("a", "b"),
        rankings={"node": rows},
        verdicts=(judge("node", rows, get_metric("sqnr_db"), None),),
        quantized=None,
        unreached=(),
        complete=True,
        effort=Effort(1, 1, "plain", float("inf"), len(rows), len(rows), 0, 2),
    )
    console = Console(width=200)
    with console.capture() as capture:
        console.print(sensitivity_verdict(report))
    return " ".join(capture.get().split())


@pytest.mark.parametrize(
    ("behind", "words"),
    [
        ([30.0, 31.0, 32.0, 33.0], ""),
        ([14.0, 16.0, 20.0, 24.0], "beware 1 other node is below 15 dB alone: what stands out is not all"),
        ([7.0, 8.0, 14.9, 15.0], "beware 3 other nodes are below 15 dB alone: what stands out is not all"),
    ],
)
def test_others_that_spoil_the_outputs_too_are_told(behind: list[float], words: str) -> None:
    text = verdict_of([-2.0, -1.0, *behind])
    assert text.startswith("2 STAND OUT of 6 nodes")
    assert (words in text) if words else ("beware" not in text)
