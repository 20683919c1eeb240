from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from roundoff.errors import ModelFailed
from roundoff.graph.splitting import SplitModel
from roundoff.runtime.session import open_session
from roundoff.runtime.split_session import SplitSession
from tests.contracts.backward_rule import in_memory
from tests.models import value, weight, wrapped


def two_steps() -> Any:
    """What is computed from x alone, from both inputs, from constants for both, and an input that is passed on."""
    nodes = [
        helper.make_node("Transpose", ["w"], ["turned"], name="turn", perm=[1, 0]),
        helper.make_node("MatMul", ["x", "turned"], ["a"], name="early"),
        helper.make_node("Greater", ["a", "zero"], ["mask"], name="mask"),
        helper.make_node("Where", ["mask", "late", "a"], ["b"], name="late_first"),
        helper.make_node("MatMul", ["b", "turned"], ["c"], name="late_second"),
        helper.make_node("Add", ["c", "x"], ["y"], name="late_last"),
    ]
    zero = numpy_helper.from_array(np.float32(0), "zero")
    fed = [value("x", (2, 3)), value("late", (2, 3))]
    return wrapped(nodes, fed, [value("a"), value("y")], [weight("w", 3, 3), zero])


def test_parts_hold_only_what_they_need() -> None:
    split = SplitModel(in_memory(two_steps()), ["late"])
    early = split.early().proto.graph
    assert [node.name for node in early.node] == ["turn", "early", "mask"]
    assert [each.name for each in early.input] == ["x"]
    assert [each.name for each in early.output] == ["a", "mask"]
    late = split.late({"mask": ("tensor(bool)", (2, 3)), "a": ("tensor(float)", (2, 3))}).proto.graph
    assert [node.name for node in late.node] == ["turn", "late_first", "late_second", "late_last"]
    assert {each.name for each in late.input} == {"late", "mask", "a", "x"}
    assert [each.name for each in late.initializer] == ["w"]
    assert split.early_outputs == ("a",)
    assert split.late_outputs == ("y",)
    assert set(split.passed) == {"mask", "a", "x"}


@pytest.mark.parametrize("fused", [False, True])
def test_both_parts_compute_what_the_whole_does(fused: bool) -> None:
    model = in_memory(two_steps())
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3)).astype(np.float32)
    session = SplitSession(model, ["late"], fused=fused)
    there = session.begin({"x": x})
    for _ in range(3):
        late = {"late": rng.standard_normal((2, 3)).astype(np.float32)}
        a, y = open_session(model).run({"x": x, **late})
        np.testing.assert_allclose(there["a"], a, rtol=1e-6)
        np.testing.assert_allclose(session.go_on(there, late)["y"], y, rtol=1e-5)


def test_nothing_late_is_nothing_more() -> None:
    session = SplitSession(in_memory(two_steps()), [])
    feed = {name: np.ones((2, 3), np.float32) for name in ("x", "late")}
    assert {"a", "y"} <= session.begin(feed).keys()
    assert session.go_on({}, {}) == {}


def test_what_cannot_be_opened_fails_in_words() -> None:
    proto = two_steps()
    proto.graph.node[1].domain = "nobody.knows"
    proto.opset_import.add(domain="nobody.knows", version=1)
    with pytest.raises(ModelFailed, match="cannot open"):
        SplitSession(in_memory(proto), ["late"])
