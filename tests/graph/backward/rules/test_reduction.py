"""Reductions over all choices of axes, and softmax in its two meanings."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contracts.backward_rule import check_rule, distinct

REDUCTIONS = [
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSum",
    "ReduceLogSumExp",
]


@given(
    op_type=st.sampled_from(REDUCTIONS),
    axes=st.sampled_from([None, (0,), (-1,), (1, 2), (0, 2), (0, 1, 2), ()]),
    keepdims=st.integers(0, 1),
    opset=st.sampled_from([7, 11, 13, 18, 22]),
    noop=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_reductions(op_type: str, axes: tuple[int, ...] | None, keepdims: int, opset: int, noop: bool) -> None:
    x = distinct((2, 3, 2), low=0.5 if op_type == "ReduceLogSum" else -2)
    by_input = opset >= (13 if op_type == "ReduceSum" else 18)
    if not by_input:
        given_axes = {} if not axes else {"axes": list(axes)}
        check_rule(op_type, x, opset=opset, keepdims=keepdims, **given_axes)
        return
    rest = [] if axes is None else [np.array(axes, np.int64)]
    # Without axes, some versions of some operations do nothing when told so.
    held = {"noop_with_empty_axes": 1} if noop and op_type == "ReduceSum" else {}
    check_rule(op_type, x, *rest, opset=opset, keepdims=keepdims, **held)


@given(
    op_type=st.sampled_from(["Softmax", "LogSoftmax"]),
    axis=st.sampled_from([None, 0, 1, 2, -1]),
    opset=st.sampled_from([7, 11, 12, 13, 22]),
)
@settings(max_examples=20, deadline=None)
def test_softmax_over_one_axis_or_all_that_follow(op_type: str, axis: int | None, opset: int) -> None:
    if opset < 11 and axis == -1:
        axis = 2
    check_rule(op_type, distinct((2, 3, 2)), opset=opset, **({} if axis is None else {"axis": axis}))


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_cumsum(exclusive: int, reverse: int) -> None:
    check_rule("CumSum", distinct((3, 4)), np.array(1, np.int64), opset=14, exclusive=exclusive, reverse=reverse)
