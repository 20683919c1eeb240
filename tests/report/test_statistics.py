import csv
import io
import json

import numpy as np
from rich.console import Console

from roundoff.core.tensors import TensorInfo
from roundoff.measure.statistics import TensorStats, TensorSummary
from roundoff.report.statistics import statistics_csv, statistics_json, statistics_table


def summary(name: str, *values: float) -> TensorSummary:
    array = np.array(values, np.float64)
    info = TensorInfo(name, "float64", array.shape, node="n1", op_type="Conv")
    return TensorSummary(info, 3, TensorStats.of(array))


GOOD = summary("conv1", 0, 2, 4)
DAMAGED = summary("=cmd()", np.nan, np.inf, 1)
NOTHING = summary("nothing", np.nan)
EMPTY = summary("empty")
HUGE = summary("huge", 1e200, -1e200)


def shown(*summaries: TensorSummary) -> str:
    console = Console(width=80, file=io.StringIO(), force_terminal=False)
    console.print(statistics_table(summaries))
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_csv_has_one_row_per_tensor() -> None:
    rows = list(csv.DictReader(io.StringIO(statistics_csv([GOOD, NOTHING]))))

    assert rows[0] == {
        "tensor": "conv1", "node": "n1", "op_type": "Conv", "dtype": "float64", "shape": "3", "samples": "3",
        "count": "3", "min": "0.0", "max": "4.0", "mean": "2.0", "std": str(GOOD.stats.std), "abs_max": "4.0",
        "zeros": "1", "nans": "0", "infs": "0",
    }  # fmt: skip
    assert (rows[1]["mean"], rows[1]["nans"]) == ("", "1")


def test_csv_of_a_hostile_name_is_no_formula() -> None:
    assert "'=cmd()" in statistics_csv([DAMAGED])


def test_json_holds_the_same_and_is_strict() -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    records = json.loads(statistics_json([GOOD, DAMAGED, NOTHING, HUGE]), parse_constant=refuse)["tensors"]

    assert records[0]["shape"] == [3]
    assert (records[0]["mean"], records[0]["zeros"]) == (2.0, 1)
    assert (records[1]["tensor"], records[1]["nans"], records[1]["infs"]) == ("=cmd()", 1, 1)
    assert records[2]["min"] is None
    assert records[3]["std"] == "inf"


def test_the_table_starts_with_what_is_not_finite() -> None:
    text = shown(GOOD, DAMAGED, EMPTY)

    assert text.splitlines()[0] == "1 of 3 tensors holds NaN or infinite values: =cmd()"
    assert "33.3 %" in text
    assert shown(GOOD).startswith("1 tensor, all values finite")


def test_the_table_fits_eighty_columns_and_stays_short() -> None:
    long = [
        summary("a/very/long/name/of/a/tensor/in/some/block/" * 2 + str(i), -1e-9, 123456.7) for i in range(50)
    ]
    lines = shown(*long).splitlines()

    assert max(map(len, lines)) <= 80
    assert lines[-1] == "... and 10 more tensors in the files"


def test_markup_in_names_is_text() -> None:
    assert "[red]x[/red]" in shown(summary("[red]x[/red]", 1))
