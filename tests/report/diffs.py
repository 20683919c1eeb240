"""A made-up difference of two runs, for reports and pages."""

from roundoff.messages.message import verbatim
from roundoff.studies.run_diff.result import Gate, GateRow, RowDiff, RunDiff, RunInputChange


def diff_of(*tensors: str, gate: bool = False) -> RunDiff:
    """Two runs of which the first tensor got worse by itself, the others because of it."""
    rows = tuple(
        RowDiff(at, f"node of {name}", "Conv", name, "", "local", at == len(tensors) - 1, 30.0, 20.0 + at,
                at - 10.0, 8, 1e-5, 1e-5, "worse", at == 0)
        for at, name in enumerate(tensors)
    )  # fmt: skip
    judged = tuple(GateRow(row.tensor, "local", "", 1.0, None, False, verbatim("lost 10.0 dB")) for row in rows)
    return RunDiff(
        before="a",
        after="b",
        compared="layers",
        kind="worse",
        rows=rows,
        first=tensors[0],
        only_before=("gone",),
        only_after=("=new",),
        renamed=(("old", tensors[-1]),),
        inputs=(
            RunInputChange("quantized", "a.onnx (01)", "b.onnx (02)"),
            RunInputChange("numpy", "2.0", "2.1", True),
        ),
        pairing="paired",
        samples=(8, 8),
        floor_db=0.5,
        level=0.05,
        notes=(verbatim("paired t-test"),),
        gate=Gate(1.0, judged, (verbatim("the output x is missing"),), ("never*",)) if gate else None,
    )
