import numpy as np
import pytest

from roundoff.core.quantizers import QuantSpec
from roundoff.errors import BadInput
from roundoff.quantize.calibration.calibration import Calibration, compare_methods, observed_range
from tests.contracts.calibration import skewed
from tests.quantize.calibration.observing import observed

SPEC = QuantSpec(8, True, True)
METHODS = ("minmax", "percentile", "mse", "entropy", "ifmr", "hfmg")


def calibration(samples: int = 2, **tensors: object) -> Calibration:
    return Calibration({name: observed(array) for name, array in tensors.items()}, samples, "histogram")  # type: ignore[arg-type]


def test_tensors_that_share_a_scale_are_calibrated_together() -> None:
    left, right = skewed(0, 500), 10 * skewed(1, 700)
    both = calibration(a=left, b=right)
    for method in METHODS:
        together = observed_range(observed(np.concatenate([left, right])), SPEC, method)
        assert both.range(["a", "b"], SPEC, method) == together


def test_several_methods_from_one_observation() -> None:
    seen = calibration(a=np.append(skewed(0, 5000), 40).astype(np.float32))
    results = compare_methods(seen, ["a"], QuantSpec(4, True, True), METHODS)
    assert [each.method for each in results] == list(METHODS)
    errors = {each.method: each.error.mse for each in results}
    assert errors["mse"] <= 1.001 * min(errors.values())
    assert errors["mse"] < 0.5 * errors["minmax"]
    for each in results:
        assert (each.low, each.high) == seen.range(["a"], QuantSpec(4, True, True), each.method)


def test_unknown_tensor() -> None:
    with pytest.raises(BadInput, match="Tensor 'conv2' was not observed") as caught:
        calibration(conv1=skewed(0)).range(["conv2"], SPEC, "minmax")
    assert "did you mean 'conv1'?" in caught.value.fix


def test_messages_name_the_tensors() -> None:
    with pytest.raises(BadInput, match="'a': There is no calibration method 'mode'"):
        calibration(a=skewed(0)).range(["a"], SPEC, "mode")


def test_channels_that_do_not_match() -> None:
    seen = Calibration(
        {"a": observed(np.zeros((1, 2)), axis=1), "b": observed(np.zeros((1, 3)), axis=1)}, 1, "histogram"
    )
    with pytest.raises(BadInput, match="'a', 'b' cannot share their scales: 2 channels on axis 1 and 3 channels"):
        seen.range(["a", "b"], SPEC.along(1), "minmax")


def test_merging() -> None:
    first, second = skewed(0, 300), skewed(1, 400)
    merged = calibration(3, a=first).merge(calibration(4, a=second))
    assert merged.samples == 7
    for method in METHODS:
        assert merged.range(["a"], SPEC, method) == observed_range(
            observed(np.concatenate([first, second])), SPEC, method
        )


def test_what_does_not_belong_together_is_not_merged() -> None:
    with pytest.raises(BadInput, match="different tensors"):
        calibration(a=skewed(0)).merge(calibration(b=skewed(0)))
    left, right = (Calibration({"a": observed(np.zeros((1, n)), axis=1)}, 1, "histogram") for n in (2, 3))
    with pytest.raises(BadInput, match="cannot be merged: 2 channels"):
        left.merge(right)


def test_notes() -> None:
    seen = calibration(
        1,
        fine=skewed(0, 10),
        dead=np.zeros(3),
        flat=np.full(3, 2.0),
        bad=np.array([np.nan, 1.0, -np.inf, 2.0]),
        worse=np.array([np.nan]),
    )
    notes = "\n".join(map(str, seen.notes))
    assert "calibrated on a single sample" in notes
    assert "tensor 'bad': 2 elements of 4 NaN or infinite" in notes
    assert "tensor 'worse': no finite element in any sample; the scale is 1" in notes
    assert "tensor 'dead': always zero" in notes
    assert "tensor 'flat': the same value everywhere" in notes
    assert "fine" not in notes


def test_notes_stay_short() -> None:
    many = {f"t{index}": np.array([np.nan, 1.0, 2.0]) for index in range(50)}
    dead = {f"d{index}": np.zeros(2) for index in range(50)}
    notes = calibration(5, **many, **dead).notes
    assert len(notes) == 7
    assert "45 more tensors with NaN or infinite elements" in str(notes[5])
    assert "and 45 more" in str(notes[6])
