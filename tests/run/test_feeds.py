import numpy as np
import pytest

from roundoff.core.tensors import InputSpec
from roundoff.errors import BadInput
from roundoff.run.capture import NO_INPUTS, check_feed

SPECS = (InputSpec("image", "float32", ("N", 3, None)), InputSpec("mask", "bool", None))
MASK = np.zeros((1,), bool)


def image(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.zeros(shape, dtype)


@pytest.mark.parametrize("array", [image(1, 3, 5), image(7, 3, 0)])
def test_free_axes_take_any_size(array: np.ndarray) -> None:
    check_feed({"image": array, "mask": MASK}, SPECS, sample="a")


@pytest.mark.parametrize(
    ("array", "got"),
    [
        (image(1, 4, 5), "float32 [1, 4, 5]"),
        (image(3, 5), "float32 [3, 5]"),
        (image(1, 3, 5, dtype="float64"), "float64 [1, 3, 5]"),
    ],
)
def test_what_does_not_fit_is_named_with_sample_input_expected_and_got(array: np.ndarray, got: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_feed({"image": array, "mask": MASK}, SPECS, sample="cat")

    assert caught.value.what == f"Sample 'cat': input 'image' must be float32 [N, 3, ?], got {got}."


def test_missing_and_unknown_inputs() -> None:
    with pytest.raises(BadInput, match=r"Sample 'cat' has no value for input 'mask' \(bool of any shape\)"):
        check_feed({"image": image(1, 3, 5)}, SPECS, sample="cat")
    with pytest.raises(BadInput, match="has a value for 'picture', which is not an input") as caught:
        check_feed({"picture": MASK}, SPECS, sample="cat")
    assert caught.value.fix == "the model's inputs are: 'image', 'mask'"


def test_a_model_without_inputs_has_one_sample() -> None:
    assert NO_INPUTS.names == ("",)
    assert NO_INPUTS.feed(0) == {}
    assert NO_INPUTS.label == "no inputs"
