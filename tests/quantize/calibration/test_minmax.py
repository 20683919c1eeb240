import numpy as np

from roundoff.core.quantizers import QuantSpec
from roundoff.quantize.calibration.calibration import observed_range
from roundoff.quantize.calibration.observer import Observer
from tests.contracts.calibration import CalibrationContract


class TestMinmax(CalibrationContract):
    name = "minmax"


def test_ranges_alone_are_enough() -> None:
    observer = Observer(1, ranges_only=True)
    observer.add(np.array([[1.0, -2.0], [3.0, 5.0]]))
    low, high = observed_range(observer.observation(), QuantSpec(8, True, False, axis=1), "minmax")
    assert (low.tolist(), high.tolist()) == ([1.0, -2.0], [3.0, 5.0])
