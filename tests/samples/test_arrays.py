"""Samples in memory."""

import numpy as np
import pytest

from roundoff.errors import BadInput
from roundoff.samples.sample_set import ArraySamples


def test_each_sample_keeps_a_batch_axis_of_one() -> None:
    images = np.arange(24.0).reshape(3, 2, 4)
    samples = ArraySamples({"image": images, "size": np.array([5, 6, 7])}, label="mine")
    assert (samples.label, samples.names) == ("mine", ("0", "1", "2"))
    np.testing.assert_array_equal(samples.feed(1)["image"], images[1][None])
    assert samples.feed(2)["size"].tolist() == [7]


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ({}, "none at all"),
        ({"a": (2, 3), "b": (3, 3)}, "'a': 2, 'b': 3"),
        ({"a": (0, 3)}, "'a': 0"),
        ({"a": ()}, "'a': 0"),
    ],
)
def test_inputs_with_different_numbers_of_samples_are_refused(
    shapes: dict[str, tuple[int, ...]], said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        ArraySamples({name: np.zeros(shape) for name, shape in shapes.items()})
