"""Which outputs are other ones in each run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from roundoff.errors import BadInput
from roundoff.graph.interface import check_repeatable, random_outputs
from roundoff.graph.load import Model
from roundoff.run.session import open_session
from tests.models import value, weight, wrapped

SHAPE = (2, 64)


def model_of(*nodes: Any, outputs: tuple[str, ...] = ("y",), constants: tuple[Any, ...] = ()) -> Model:
    proto = wrapped(nodes, [value("x", SHAPE)], [value(name) for name in outputs], constants)
    return Model(proto, Path("net.onnx"), 0)


def node(op_type: str, inputs: list[str], output: str, **attributes: Any) -> Any:
    return helper.make_node(op_type, inputs, [output], name=f"{output}!", **attributes)


def dropout(*, training: bool, ratio: float = 0.5) -> Model:
    held = (
        numpy_helper.from_array(np.float32(ratio), "ratio"),
        numpy_helper.from_array(np.array(training), "training"),
    )
    return model_of(node("Dropout", ["x", "ratio", "training"], "y"), constants=held)


def with_noise_inside() -> Model:
    """An If that draws in one branch."""
    branches = [
        helper.make_graph([node(op_type, ["x"], f"{op_type}_out")], op_type, [], [value(f"{op_type}_out")])
        for op_type in ("RandomUniformLike", "Neg")
    ]
    chosen = node("If", ["yes"], "y", then_branch=branches[0], else_branch=branches[1])
    return model_of(chosen, constants=(numpy_helper.from_array(np.array(True), "yes"),))


RANDOM = {
    "like": model_of(node("RandomNormalLike", ["x"], "noise"), node("Add", ["x", "noise"], "y")),
    "seeded": model_of(node("RandomNormalLike", ["x"], "noise", seed=1.0), node("Add", ["x", "noise"], "y")),
    "from nothing": model_of(node("RandomUniform", [], "noise", shape=SHAPE), node("Mul", ["x", "noise"], "y")),
    "dropout": dropout(training=True),
    "inside a branch": with_noise_inside(),
}
REPEATABLE = {
    "dropout of an exported model": dropout(training=False),
    "dropout of nothing": dropout(training=True, ratio=0.0),
    "its shape alone": model_of(
        node("RandomNormalLike", ["x"], "noise"),
        node("Shape", ["noise"], "shape"),
        node("Reshape", ["x", "shape"], "y"),
    ),
    "plain": model_of(node("MatMul", ["x", "w"], "y"), constants=(weight("w", 64, 3),)),
}


@pytest.mark.parametrize("model", RANDOM.values(), ids=RANDOM)
def test_outputs_left_to_chance_really_change(model: Model) -> None:
    session, feed = open_session(model), {"x": np.ones(SHAPE, np.float32)}
    [first], [second] = session.run(feed), session.run(feed)
    assert not np.array_equal(first, second)
    assert list(random_outputs(model)) == ["y"]
    with pytest.raises(
        BadInput, match=r"Two runs of net\.onnx cannot be compared: output 'y' depends on '.*!' \("
    ):
        check_repeatable(model)
    check_repeatable(model, ())


@pytest.mark.parametrize("model", REPEATABLE.values(), ids=REPEATABLE)
def test_other_outputs_are_the_same_each_time(model: Model) -> None:
    session, feed = open_session(model), {"x": np.ones(SHAPE, np.float32)}
    [first], [second] = session.run(feed), session.run(feed)
    np.testing.assert_array_equal(first, second)
    assert random_outputs(model) == {}
    check_repeatable(model)


def test_only_what_depends_on_chance_is_named() -> None:
    nodes = (
        node("RandomNormalLike", ["x"], "noise"),
        node("Relu", ["noise"], "y"),
        node("Neg", ["x"], "z"),
    )
    assert random_outputs(model_of(*nodes, outputs=("y", "z"))) == {"y": "'noise!' (RandomNormalLike)"}


def test_functions_are_looked_into() -> None:
    proto = model_of(helper.make_node("Noisy", ["x"], ["y"], name="call", domain="own")).proto
    body = [helper.make_node("RandomNormalLike", ["a"], ["b"])]
    opsets = [helper.make_opsetid("", 17)]
    proto.functions.append(helper.make_function("own", "Noisy", ["a"], ["b"], body, opsets))
    assert random_outputs(Model(proto, Path("net.onnx"), 0)) == {"y": "'call' (Noisy)"}


def test_a_dropout_that_is_told_at_run_time_may_drop() -> None:
    proto = dropout(training=True).proto
    del proto.graph.initializer[1]
    proto.graph.input.append(value("training", (), TensorProto.BOOL))
    assert random_outputs(Model(proto, Path("net.onnx"), 0)) == {"y": "'y!' (Dropout)"}
