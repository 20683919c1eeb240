"""Random networks of vectors: any wiring, any outputs, tensors that are read often or only late."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from onnx import helper

from tests.models import value, weight, wrapped

WIDTH = 4


@st.composite
def random_nets(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Any:
    """A model with the inputs `x0` and perhaps `x1` of shape (N, 4)."""
    inputs = draw(st.integers(1, 2))
    tensors = [f"x{at}" for at in range(inputs)]
    nodes: list[Any] = []
    weights: list[Any] = []
    for at in range(draw(st.integers(1, 12))):
        left, right = (draw(st.sampled_from(tensors)) for _ in range(2))
        kind = draw(st.sampled_from(["MatMul", "shared", "Add", "Mul", "Relu", "Sigmoid", "turned"]))
        name, read = f"n{at}", [left]
        if kind == "MatMul":
            weights.append(weight(f"w{at}", WIDTH, WIDTH, seed=at))
            read, kind = [left, f"w{at}"], "MatMul"
        elif kind == "shared":
            read, kind = [left, "shared"], "MatMul"
        elif kind == "turned":
            # A constant that is computed: it belongs to whatever block reads it.
            nodes.append(helper.make_node("Transpose", ["shared"], [f"c{at}"], name=f"turn{at}", perm=[1, 0]))
            read, kind = [left, f"c{at}"], "MatMul"
        elif kind in ("Add", "Mul"):
            read = [left, right]
        nodes.append(helper.make_node(kind, read, [f"t{at}"], name=name))
        tensors.append(f"t{at}")
    weights.append(weight("shared", WIDTH, WIDTH, seed=99))
    computed = tensors[inputs:]
    leaving = draw(st.lists(st.sampled_from(computed), min_size=1, max_size=3, unique=True))
    fed = [value(f"x{at}", ("N", WIDTH)) for at in range(inputs)]
    return wrapped(nodes, fed, [value(name) for name in leaving], weights)
