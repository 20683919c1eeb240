"""Parts of outputs that different branches compute, through levels, moved axes and constant factors."""

from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import roundoff
from roundoff.graph.interface import output_parts
from roundoff.graph.load import Model, load_model
from tests.models import save, wrapped

LEVELS = (16, 4)


def saved(path: Path, nodes: list[Any], weights: dict[str, Any], shape: tuple[int, ...]) -> Model:
    made = wrapped(
        nodes,
        [helper.make_tensor_value_info("image", T.FLOAT, [1, 3, 4, 4])],
        [helper.make_tensor_value_info("found", T.FLOAT, list(shape))],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    return load_model(save(made, path))


def detector(path: Path) -> Model:
    """Boxes in pixels and scores, joined in each of two levels, which are joined in turn and transposed."""
    rng = np.random.default_rng(0)
    nodes: list[Any] = []
    weights: dict[str, Any] = {"pixels": np.float32(640)}
    levels = []
    for level, places in enumerate(LEVELS):
        for kind, channels in (("box", 4), ("score", 3)):
            name = f"{kind}{level}"
            weights[f"{name}.w"] = rng.normal(size=(channels, 3, 1, 1)).astype(np.float32)
            strides = [2**level, 2**level]
            nodes.append(helper.make_node("Conv", ["image", f"{name}.w"], [f"{name}.c"], strides=strides))
            nodes.append(helper.make_node("Sigmoid", [f"{name}.c"], [f"{name}.s"]))
        nodes.append(helper.make_node("Mul", [f"box{level}.s", "pixels"], [f"box{level}"]))
        nodes.append(helper.make_node("Concat", [f"box{level}", f"score{level}.s"], [f"join{level}"], axis=1))
        weights[f"shape{level}"] = np.array([1, 7, places])
        nodes.append(helper.make_node("Reshape", [f"join{level}", f"shape{level}"], [f"level{level}"]))
        levels.append(f"level{level}")
    nodes.append(helper.make_node("Concat", levels, ["all"], axis=2))
    nodes.append(helper.make_node("Transpose", ["all"], ["found"], perm=[0, 2, 1]))
    return saved(path, nodes, weights, (1, sum(LEVELS), 7))


SHAPES = {
    "box0": (1, 4, 4, 4), "score0.s": (1, 3, 4, 4), "join0": (1, 7, 4, 4), "level0": (1, 7, 16),
    "box1": (1, 4, 2, 2), "score1.s": (1, 3, 2, 2), "join1": (1, 7, 2, 2), "level1": (1, 7, 4), "all": (1, 7, 20),
}  # fmt: skip


def test_boxes_and_scores_are_told_apart_through_levels(tmp_path: Path) -> None:
    parts = output_parts(detector(tmp_path / "m.onnx"), {"found": (1, 20, 7)}, SHAPES)
    assert [(each.axis, each.start, each.stop, each.source) for each in parts] == [
        (2, 0, 4, "box0"),
        (2, 4, 7, "score0.s"),
    ]


def test_levels_of_one_kind_are_parts_themselves(tmp_path: Path) -> None:
    shapes = {name: shape for name, shape in SHAPES.items() if not name.startswith(("box", "score"))}
    parts = output_parts(detector(tmp_path / "m.onnx"), {"found": (1, 20, 7)}, shapes)
    assert [(each.axis, each.start, each.stop) for each in parts] == [(1, 0, 16), (1, 16, 20)]


def test_a_factor_that_differs_makes_parts(tmp_path: Path) -> None:
    factors = np.array([640, 640, 1], np.float32).reshape(1, 3, 1, 1)
    model = saved(
        tmp_path / "m.onnx",
        [helper.make_node("Sigmoid", ["image"], ["s"]), helper.make_node("Mul", ["s", "f"], ["found"])],
        {"f": factors},
        (1, 3, 4, 4),
    )
    parts = output_parts(model, {"found": (1, 3, 4, 4)}, {"s": (1, 3, 4, 4)})
    assert [(each.axis, each.start, each.stop) for each in parts] == [(1, 0, 2), (1, 2, 3)]


def test_scores_that_a_board_never_wrote_do_not_pass(tmp_path: Path) -> None:
    model = detector(tmp_path / "m.onnx")
    images = np.random.default_rng(1).normal(size=(8, 3, 4, 4)).astype(np.float32)
    right = {"found": np.concatenate([_run(model, image[None]) for image in images])}
    lost = {"found": right["found"].copy()}
    lost["found"][..., 4:] = 0
    samples = {"image": images}
    assert roundoff.compare(tmp_path / "m.onnx", right, data=samples).good
    assert roundoff.compare(tmp_path / "m.onnx", lost, data=samples).verdict.startswith("FAIL")


def _run(model: Model, image: Any) -> Any:
    import onnxruntime as ort

    return ort.InferenceSession(str(model.path), providers=["CPUExecutionProvider"]).run(None, {"image": image})[0]
