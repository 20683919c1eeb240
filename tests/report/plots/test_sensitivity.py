"""The picture of a ranking."""

from roundoff.report.plots.curves import sensitivity_picture
from roundoff.studies.sensitivity.result import Effort, SensitivityReport, SensitivityRow


def report(count: int) -> SensitivityReport:
    rows = tuple(
        SensitivityRow(
            place + 1, f"a/very/long/name/of/a/node/$_{place}", "", "Conv", "", (), {"sqnr_db": value},
            {"sqnr_db": None if place % 2 else (value - 1, value + 1)}, {"sqnr_db": (value,)}, 4, (), "", None,
        )
        for place, value in enumerate([20.0 + place / 10 for place in range(count - 1)] + [float("inf")])
    )  # fmt: skip
    effort = Effort(1, 1, "fast", 100.0, count, count, 0, 4)
    return SensitivityReport(
        "m", "alone", ("sqnr_db",), ("y",), ("s",) * 4, {"node": rows}, (), None, (), True, effort
    )


def test_as_readable_with_500_nodes_as_with_a_few() -> None:
    few, many = (sensitivity_picture(report(count), "node") for count in (3, 500))
    assert few.startswith(b"\x89PNG")
    # 30 names at most; 120 pixels to an inch.
    height = int.from_bytes(many[20:24], "big")
    assert height == round((1.4 + 0.22 * 30 + 2.2) * 120)


def test_the_same_picture_twice() -> None:
    assert sensitivity_picture(report(3), "node", form="svg") == sensitivity_picture(report(3), "node", form="svg")
