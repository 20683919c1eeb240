"""Calibration data in all their forms."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roundoff.core.tensors import Array, InputSpec
from roundoff.errors import BadInput
from roundoff.vendors.horizon.inputs import Dataset, open_dataset

INPUTS = (InputSpec("left", "float32", (1, 2)), InputSpec("data/right", "float32", (1, 3)))
COUNT = 12


def sample(index: int) -> dict[str, Array]:
    return {
        "left": np.full((1, 2), index, dtype=np.float32),
        "data/right": np.full((1, 3), -index, dtype=np.float32),
    }


def check(data: Dataset) -> None:
    assert len(data) == COUNT
    for index, feed in enumerate(data):
        for name, array in sample(index).items():
            np.testing.assert_array_equal(feed[name], array)


def test_a_folder_for_each_input(tmp_path: Path) -> None:
    for index in range(COUNT):
        for name, array in sample(index).items():
            folder = tmp_path / name.replace("/", "_")
            folder.mkdir(exist_ok=True)
            np.save(folder / f"{index}.npy", array)
    check(open_dataset(str(tmp_path), INPUTS))


@pytest.mark.parametrize("prefix", ["", "input_data_"])
def test_files_side_by_side(tmp_path: Path, prefix: str) -> None:
    for index in range(COUNT):
        for name, array in sample(index).items():
            np.save(tmp_path / f"b{index}_{prefix}{name.replace('/', '_')}.npy", array)
    check(open_dataset(tmp_path, INPUTS))
    (tmp_path / f"b3_{prefix}left.npy").unlink()
    with pytest.raises(BadInput, match="no file of sample 3 for the input 'left'"):
        open_dataset(tmp_path, INPUTS)


def test_arrays_in_memory() -> None:
    listed = {name: [sample(index)[name] for index in range(COUNT)] for name in sample(0)}
    check(open_dataset(listed, INPUTS))
    check(open_dataset({name: np.concatenate(arrays) for name, arrays in listed.items()}, INPUTS))


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ({"left": [1]}, "no samples for the input 'data/right'"),
        ({"lef": [1], "data/right": [1]}, "no input 'lef'"),
        ({"left": [1, 2], "data/right": [1]}, "2 for 'left', 1 for 'data/right'"),
        ({"left": [], "data/right": []}, "different numbers of samples, or none"),
    ],
)
def test_arrays_that_do_not_fit(data: Any, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        open_dataset(data, INPUTS)


def test_a_dataset_is_a_sequence() -> None:
    listed = {name: [sample(index)[name] for index in range(COUNT)] for name in sample(0)}
    data = open_dataset(listed, INPUTS)
    assert open_dataset(data, INPUTS) is data
    part = data.chosen([5, 3, 8])
    assert part.names == ("5", "3", "8")
    assert part[-1]["left"][0, 0] == 8
    assert [feed["left"][0, 0] for feed in part[1:]] == [3, 8]
    assert part.first(1).names == ("5",)
    with pytest.raises(IndexError):
        part[3]
