"""Narrow multipliers: each operand of a sum by itself, as TPU-MLIR's Add, Mul and pools were measured to do it."""

import numpy as np
import pytest

from roundoff.core.quantizers import QuantParams, QuantSpec
from roundoff.quantize.targets import load_target
from roundoff.run.integer.elementwise import CodeMean, ShiftedSum
from roundoff.run.integer.results import Coded, Wide, fixed_point

SPEC = QuantSpec(bits=8, signed=True, symmetric=True)
CHIP = load_target("bm1684x").arithmetic


def _params(scale: float) -> QuantParams:
    return QuantParams(np.asarray(scale, np.float32), np.asarray(0))


def _coded(scale: float, seed: int) -> Coded:
    codes = np.random.default_rng(seed).integers(-128, 128, (4, 50)).astype(np.int8)
    return Coded(codes, _params(scale), SPEC)


@pytest.mark.parametrize(
    ("factor", "multiplier", "shift"),
    [
        # From lowered graphs: multipliers there without the zeros at their end.
        (0.029475551181102361 / 0.027327124409448816, 69, 6),
        (0.0090740110236220469 / 0.027327124409448816, 85, 8),
        (0.052763638582677165 / 0.030805741176470586, 110, 6),
        (0.029523087401574801 / 64 / 0.0045164787401574804, 105, 10),
    ],
)
def test_seven_bits(factor: float, multiplier: int, shift: int) -> None:
    found = fixed_point(np.asarray(factor), CHIP.narrow_bits)
    assert (int(found.multiplier), CHIP.narrow_bits - int(found.exponent)) == (multiplier, shift)


def test_operands_are_rounded_one_by_one() -> None:
    left, right = _coded(0.029475551, 0), _coded(0.009074011, 1)
    made = ShiftedSum(left, right, 1).narrow().codes_for(_params(0.027327124), SPEC, CHIP)
    parts = (
        (left.codes.astype(np.int64) * 69 + 32) >> 6,
        (right.codes.astype(np.int64) * 85 + 128) >> 8,
    )
    assert np.array_equal(made, np.clip(sum(parts), -128, 127))


def test_products_and_means_have_one_rounding() -> None:
    total = np.arange(-3000, 3000, 7)
    made = Wide(total, np.asarray(0.02660 / 4)).narrow().codes_for(_params(0.015675), SPEC, CHIP)
    multiplier = round(0.02660 / 4 / 0.015675 * 2**8)
    assert np.array_equal(made, np.clip((total * multiplier + 128) >> 8, -128, 127))
    mean = CodeMean(total, np.asarray(4), _coded(0.02660, 2)).narrow()
    assert np.array_equal(mean.codes_for(_params(0.015675), SPEC, CHIP), made)
