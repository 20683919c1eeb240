from math import erf
from typing import Any

import numpy as np
import pytest

from roundoff.core.quantizers import QuantSpec, Rounding
from roundoff.core.target import Arithmetic
from tests.run.integer.support import S8, U8, U16, Codes, params, random_codes, run_node

FUNCTIONS = [
    ("Sigmoid", lambda x: 1 / (1 + np.exp(-x))),
    ("Tanh", np.tanh),
    ("HardSwish", lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    ("HardSigmoid", lambda x: np.clip(x * 0.2 + 0.5, 0, 1)),
    ("Erf", np.vectorize(erf)),
    ("Exp", np.exp),
]
SIGNED = QuantSpec(8, signed=True, symmetric=False)


@pytest.mark.parametrize(("op_type", "function"), FUNCTIONS)
@pytest.mark.parametrize("rounding", ["half_even", "floor"])
@pytest.mark.parametrize("spec", [U8, SIGNED])
def test_a_table_holds_every_code(op_type: str, function: Any, rounding: Rounding, spec: QuantSpec) -> None:
    x = Codes(np.arange(spec.code_min, spec.code_max + 1).reshape(2, 128), params(0.031, 17), spec)
    out = params(0.017, 5), U8
    arithmetic = Arithmetic(rounding=rounding, tables=frozenset({op_type}))

    ran = run_node(op_type, {"x": x}, {"y": out}, arithmetic=arithmetic)

    steps = function(x.real.astype(np.float64)) / float(out[0].scale)
    near = np.floor(steps) if rounding == "floor" else np.rint(steps)
    # The function itself is float32; only a value at the very edge of a step may fall on its other side.
    decided = np.abs(steps - np.round(steps * 2) / 2) > 1e-4
    assert ran.report.table_nodes == ("node",)
    assert decided.mean() > 0.7
    assert np.array_equal(ran.codes[decided], np.clip(near + 5, 0, 255)[decided])


def test_sixteen_bit_codes_have_a_larger_table() -> None:
    x = random_codes(np.random.default_rng(0), (500,), params(0.0002, 30000), U16)
    signed16 = QuantSpec(16, signed=True, symmetric=True)

    ran = run_node(
        "Tanh", {"x": x}, {"y": (params(1 / 32767), signed16)}, arithmetic=Arithmetic(tables=frozenset({"Tanh"}))
    )

    assert ran.report.table_nodes == ("node",)
    assert np.abs(ran.codes - np.tanh(x.real.astype(np.float64)) * 32767).max() < 0.51


def test_softmax_by_tables_is_rounded_as_the_target_says() -> None:
    x = random_codes(np.random.default_rng(1), (4, 10), params(0.05, 128))
    out = params(1 / 256, -128), SIGNED

    ran = run_node(
        "Softmax", {"x": x}, {"y": out}, arithmetic=Arithmetic(rounding="floor", tables=frozenset({"Softmax"}))
    )

    powers = np.exp(x.real.astype(np.float64))
    expected = np.floor(powers / powers.sum(axis=1, keepdims=True) * 256) - 128
    assert ran.report.table_nodes == ("node",)
    assert np.array_equal(ran.codes, np.clip(expected, -128, 127))


def test_without_a_table_a_function_runs_in_float() -> None:
    x = random_codes(np.random.default_rng(2), (9,), params(0.05, 128))

    ran = run_node("Sigmoid", {"x": x}, {"y": (params(1 / 256), U8)})

    [entry] = ran.report.float_nodes
    assert (entry.op_type, entry.why) == ("Sigmoid", "Sigmoid has no integer version")
    assert np.abs(ran.codes - np.clip(256 / (1 + np.exp(-x.real)), 0, 255)).max() < 0.51


def test_what_no_table_can_hold_is_said() -> None:
    wide = QuantSpec(32, signed=True, symmetric=True)
    x = Codes(np.array([1, 2]), params(0.5), wide)
    tables = Arithmetic(tables=frozenset({"Tanh", "Einsum"}))

    ran = run_node("Tanh", {"x": x}, {"y": (params(1 / 128), S8)}, arithmetic=tables)

    assert [entry.why for entry in ran.report.float_nodes] == ["a table of 32-bit codes would be too large"]


def test_a_table_result_that_is_not_quantized_has_float_values() -> None:
    x = Codes(np.arange(256), params(0.05, 128))

    ran = run_node("Tanh", {"x": x}, arithmetic=Arithmetic(tables=frozenset({"Tanh"})))

    np.testing.assert_allclose(ran.values, np.tanh(x.real), atol=1e-6)
