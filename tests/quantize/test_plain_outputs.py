"""Outputs that are no tensors of numbers."""

from typing import Any

import numpy as np
import pytest

from roundoff.quantize.agreement import same_output, without_numbers

TEXT = np.array(["a", "b"], dtype=object)
NUMBERS = np.array([1.0, np.nan], np.float32)


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (NUMBERS, ""),
        (np.array([True]), ""),
        (TEXT, "it holds text, not numbers"),
        ([NUMBERS], "it is a sequence or map, not a tensor"),
        ({"a": 1.0}, "it is a sequence or map, not a tensor"),
        (None, "it holds nothing"),
    ],
)
def test_what_an_output_is(output: Any, said: str) -> None:
    assert without_numbers(output) == said
    assert same_output(output, output)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (TEXT, np.array(["a", "c"], dtype=object)),
        (TEXT, TEXT[:1]),
        ([NUMBERS], [NUMBERS, NUMBERS]),
        ([NUMBERS], [NUMBERS + 1]),
        ({"a": 1.0}, {"b": 1.0}),
        ({"a": 1.0}, {"a": 2.0}),
        (None, [NUMBERS]),
    ],
)
def test_what_differs(ours: Any, theirs: Any) -> None:
    assert not same_output(ours, theirs)
