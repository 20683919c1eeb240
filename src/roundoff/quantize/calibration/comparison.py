"""Several calibration methods side by side, from one observation."""

from collections.abc import Sequence
from dataclasses import dataclass

from roundoff.core.quantizers import QuantSpec
from roundoff.core.tensors import Array
from roundoff.quantize.calibration.calibration import Calibration
from roundoff.quantize.calibration.ranges import RangeError, observed_range, range_error
from roundoff.quantize.calibration.registry import Options

__all__ = ["MethodResult", "compare_methods"]


@dataclass(frozen=True, slots=True, eq=False)
class MethodResult:
    """What one method makes of a tensor.

    Attributes:
        method: Its name.
        low: Smallest value that codes cover, of shape [] or [C].
        high: Largest value that codes cover.
        error: What that costs, estimated from the same observation.
    """

    method: str
    low: Array
    high: Array
    error: RangeError


def compare_methods(
    calibration: Calibration,
    tensors: Sequence[str],
    spec: QuantSpec,
    methods: Sequence[str],
    options: Options | None = None,
) -> tuple[MethodResult, ...]:
    """Let several methods find a range for tensors that share one scale; the model is not run again.

    Args:
        calibration: What was observed.
        tensors: The tensors.
        spec: How values become codes.
        methods: Names of the methods.
        options: Options of all methods by name.

    Raises:
        BadInput: A tensor was not observed, or only its range was; or there is no such method.
    """
    observation = calibration.observation(tensors)
    results = []
    for method in methods:
        low, high = observed_range(observation, spec, method, options)
        results.append(MethodResult(method, low, high, range_error(observation, spec, low, high)))
    return tuple(results)
