"""One tensor element by element."""

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roundoff.vendors.ascend import single
from roundoff.vendors.ascend.single import Detail, Single, write_single


def lines_of(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return [[cell.strip() for cell in line] for line in csv.reader(file)][1:]


@given(
    values=st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=1, max_size=40),
    top=st.integers(1, 12),
    block=st.integers(1, 50),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_largest_errors_are_listed_whatever_the_blocks(
    tmp_path: Path, values: list[tuple[int, int]], top: int, block: int
) -> None:
    mine, golden = (np.array(side, np.float32) for side in zip(*values, strict=True))
    found = Single(mine, golden, (1, len(values)), "N C H W", "net/op", "output_0", "net/op", "op")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(single, "_BLOCK", block)
        patch.setattr(single, "_TABLE_BLOCK", block)
        write_single(found, tmp_path, detail=Detail(top, 10))
    absolute = np.abs(mine - golden)
    expected = sorted(range(len(values)), key=lambda place: (absolute[place], place), reverse=True)[:top]
    listed = lines_of(tmp_path / "net_op_output_0_absolute_error_topn.csv")
    assert [int(line[0]) for line in listed] == expected
    with np.errstate(all="ignore"):
        relative = absolute / np.abs(golden)
    relative[~np.isfinite(relative)] = 0
    expected = sorted(range(len(values)), key=lambda place: (relative[place], place), reverse=True)[:top]
    assert [int(line[0]) for line in lines_of(tmp_path / "net_op_output_0_relative_error_topn.csv")] == expected
    tables = sorted(
        tmp_path.glob("net_op_output_0_[0-9]*.csv"), key=lambda path: int(path.stem.rpartition("_")[2])
    )
    rows = [line for path in tables for line in lines_of(path)]
    assert [int(row[0]) for row in rows] == list(range(len(values)))
    assert [float(row[2]) for row in rows] == mine.tolist()
    summary = (tmp_path / "net_op_output_0_summary.txt").read_text()
    assert f"MaxAbsoluteError:{absolute.max():.6f}\n" in summary


def test_names_too_long_for_the_disk_are_noted(tmp_path: Path) -> None:
    op = "x" * 300
    found = Single(np.ones(2), np.zeros(2), (2,), "N C H W", op, "output_0", op, op)
    write_single(found, tmp_path, detail=Detail(1))
    noted = dict(line.split(",") for line in (tmp_path / "simple_op_mapping.csv").read_text().splitlines())
    assert f"{op}_output_0_summary.txt" in noted.values()
    assert {path.name for path in tmp_path.iterdir()} == {*noted, "simple_op_mapping.csv"}


@pytest.mark.parametrize("strict", [False, True])
def test_integers_do_not_wrap_around_unless_the_vendor_is_wanted(tmp_path: Path, strict: bool) -> None:
    mine, golden = np.array([1, 200], np.uint8), np.array([2, 100], np.uint8)
    found = Single(mine, golden, (2,), "N C H W", "op", "output_0", "op", "op")
    write_single(found, tmp_path, detail=Detail(2, strict=strict))
    first = lines_of(tmp_path / "op_output_0_0.csv")[0]
    assert first[4] == ("255.000000" if strict else "1.000000")


@given(
    st.lists(
        st.tuples(
            st.floats(width=16) | st.integers(-(2**20), 2**20).map(lambda number: number / 2**22),
            st.floats(-1e7, 1e7, width=32) | st.sampled_from([0.0, -0.0, 0.0000005, 2.5e-7, 1e12, np.nan]),
        ),
        min_size=1,
        max_size=30,
    ),
    st.sampled_from(["float16", "float32", "float64", "int32"]),
    st.integers(0, 2**27),
)
def test_tables_are_printed_number_by_number(values: list[tuple[float, float]], dtype: str, first: int) -> None:
    with np.errstate(all="ignore"):
        mine = np.array([each[0] for each in values]).astype(dtype)
        golden = np.array([each[1] for each in values], np.float32)
        absolute = np.abs(mine.astype(np.float64) - golden)
        relative = absolute / np.abs(golden)
    found = Single(mine, golden, (2**27 + 30,), "N C H W", "op", "output_0", "op", "op")
    block = single._ElementBlock(mine, golden, absolute, relative)
    rows = [
        f"{first + place},{first + place} 0 0 0,{mine[place]:.6f}\t,{golden[place]:.6f}\t,{absolute[place]:.6f}\t,"
        + (f"{relative[place]:.6f}\t\n" if np.isfinite(relative[place]) else "-\n")
        for place in range(len(values))
    ]
    shape = (*found.shape, 1, 1, 1)
    assert single._lines(found, block, shape, first=first, part=slice(None)).decode() == "".join(rows)
