"""Derivatives of functions of one number, over the versions of the operators that have them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.graph.backward.builder import backward_graph
from roundoff.graph.backward.registry import rules
from tests.contracts.backward_rule import check_rule, distinct, in_memory, node_model

SETTINGS = settings(max_examples=8, deadline=None)

# Operation, its attributes, the range it is looked at in, and the first version that has it.
FUNCTIONS: list[tuple[str, dict[str, Any], tuple[float, float], int]] = [
    ("Relu", {}, (-2, 2), 7),
    ("LeakyRelu", {"alpha": 0.3}, (-2, 2), 7),
    ("LeakyRelu", {}, (-2, 2), 16),
    ("ThresholdedRelu", {"alpha": 0.7}, (-2, 2), 10),
    ("Elu", {"alpha": 1.7}, (-2, 2), 7),
    ("Celu", {"alpha": 2.5}, (-2, 2), 12),
    ("Selu", {}, (-2, 2), 7),
    ("Selu", {"alpha": 1.5, "gamma": 0.8}, (-2, 2), 7),
    ("Sigmoid", {}, (-4, 4), 7),
    ("HardSigmoid", {}, (-4, 4), 7),
    ("HardSigmoid", {"alpha": 0.4, "beta": 0.3}, (-2, 2), 7),
    ("HardSwish", {}, (-5, 5), 14),
    ("Tanh", {}, (-3, 3), 7),
    ("Softplus", {}, (-3, 3), 7),
    ("Softsign", {}, (-3, 3), 7),
    ("Erf", {}, (-2, 2), 9),
    ("Gelu", {}, (-3, 3), 20),
    ("Gelu", {"approximate": "tanh"}, (-3, 3), 20),
    ("Mish", {}, (-3, 3), 18),
    ("Exp", {}, (-2, 2), 7),
    ("Log", {}, (0.3, 3), 7),
    ("Sqrt", {}, (0.3, 3), 7),
    ("Reciprocal", {}, (0.6, 3), 7),
    ("Abs", {}, (-2, 2), 7),
    ("Neg", {}, (-2, 2), 7),
    ("Sin", {}, (-3, 3), 7),
    ("Cos", {}, (-3, 3), 7),
    ("Tan", {}, (-1, 1), 7),
    ("Sinh", {}, (-2, 2), 9),
    ("Cosh", {}, (-2, 2), 9),
    ("Asin", {}, (-0.8, 0.8), 7),
    ("Acos", {}, (-0.8, 0.8), 7),
    ("Atan", {}, (-3, 3), 7),
    ("Asinh", {}, (-3, 3), 9),
    ("Acosh", {}, (1.4, 3), 9),
    ("Atanh", {}, (-0.8, 0.8), 9),
    ("Identity", {}, (-2, 2), 7),
    ("Dropout", {}, (-2, 2), 7),
]
NEWEST = 22


@pytest.mark.parametrize(
    ("op_type", "attributes", "bounds", "first"), FUNCTIONS, ids=[f"{f[0]}{f[3]}{len(f[1])}" for f in FUNCTIONS]
)
def test_derivatives_are_slopes_in_the_oldest_and_the_newest_version(
    op_type: str, attributes: dict[str, Any], bounds: tuple[float, float], first: int
) -> None:
    values = distinct((4, 6), low=bounds[0], high=bounds[1])
    for opset in (first, NEWEST):
        check_rule(op_type, values, opset=opset, **attributes)


@pytest.mark.parametrize("opset", [7, 11, 13, 22])
@pytest.mark.parametrize("bounds", [(-0.5, 0.7), (None, 0.7), (0.1, None), (None, None)])
def test_clip(opset: int, bounds: tuple[float | None, float | None]) -> None:
    values = distinct((3, 8))
    if opset < 11:
        names = ("min", "max")
        check_rule(
            "Clip", values, opset=opset, **{n: b for n, b in zip(names, bounds, strict=True) if b is not None}
        )
    else:
        # The bounds are inputs as well, and have gradients.
        check_rule("Clip", values, *(None if b is None else np.array(b) for b in bounds), opset=opset)


@given(shape=st.sampled_from([(1,), (3,), (3, 1), (3, 4), (1, 4), (2, 3, 4)]), opset=st.sampled_from([7, 9, 16]))
@SETTINGS
def test_prelu(shape: tuple[int, ...], opset: int) -> None:
    if shape == (3,):
        shape = (4,)
    check_rule("PRelu", distinct((2, 3, 4)), distinct(shape, seed=1), opset=opset)


def test_a_dropout_that_drops_has_no_rule() -> None:
    inputs = [distinct((2, 3)), np.array(0.5, np.float32), np.array(True)]
    proto = node_model("Dropout", inputs, dtype=np.dtype(np.float32), opset=13, outputs=1, attributes={})
    assert "training mode" in backward_graph(in_memory(proto), ["x0"]).without_rule["x0"]


def test_every_function_of_one_number_is_tested() -> None:
    assert {op_type for op_type, *_ in FUNCTIONS} <= set(rules())
