"""Quantizers moved onto the float model, whatever happened to its names."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnxruntime.quantization import QuantType

from roundoff.errors import BadInput
from roundoff.graph.load import Model, load_model
from roundoff.graph.readers.reader import read_quantized
from tests.graph.quantized_nets import mixed_net, run_model
from tests.graph.readers.tools import (
    Net,
    attention,
    by_name,
    constant,
    node,
    quantized_by_onnxruntime,
    read_back,
    reference,
)
from tests.models import conv_net, loaded, random_feed, save, value, weight, wrapped

OPTIONS: dict[str, Any] = {
    "activation_type": QuantType.QUInt8,
    "weight_type": QuantType.QInt8,
    "per_channel": True,
}


def renamed(model: Model, folder: Path) -> Model:
    """The same model with other names for everything but its outputs, and another order of its constants."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    graph = proto.graph
    kept = {entry.name for entry in graph.output}
    names: dict[str, str] = {}

    def other(name: str) -> str:
        return name if name in kept or not name else names.setdefault(name, f"t{len(names)}")

    for index, each in enumerate(graph.node):
        each.name = f"n{97 * index % 31}"
        for entries in (each.input, each.output):
            for at, name in enumerate(entries):
                entries[at] = other(name)
    for entry in (*graph.input, *graph.initializer):
        entry.name = other(entry.name)
    del graph.value_info[:]
    tensors = list(graph.initializer)[::-1]
    del graph.initializer[:]
    graph.initializer.extend(tensors)
    return load_model(save(proto, folder / "renamed.onnx"))


NETS: dict[str, Net] = {
    "conv": (conv_net(), {"image": (1, 3, 8, 8)}),
    "mixed": (mixed_net(), {"image": (1, 3, 4, 4)}),
    "attention": attention(),
}


@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
def test_by_structure_where_names_tell_nothing(tmp_path: Path, net: Net) -> None:
    model = quantized_by_onnxruntime(net, tmp_path, **OPTIONS)
    source = renamed(load_model(tmp_path / "float.onnx"), tmp_path)
    feed = random_feed(net[1], seed=7)

    moved = read_quantized(model, float_model=source)

    assert len(moved.quantizers) == len(read_quantized(model).quantizers)
    assert (moved.oddities, moved.notes) == ((), ())
    fed = dict(zip((entry.name for entry in source.proto.graph.input), feed.values(), strict=False))
    np.testing.assert_array_equal(read_back(moved, fed), reference(model, feed))


def test_equal_branches_are_told_apart_by_their_weights(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["x", name], f"h{name}") for name in "abcd"]
    nodes += [node("Concat", ["ha", "hb", "hc", "hd"], "y", axis=1)]
    weights = [weight(name, 6, 4, seed=seed) for seed, name in enumerate("abcd")]
    net: Net = wrapped(nodes, [value("x", (2, 6))], [value("y", (2, 16))], weights), {"x": (2, 6)}
    model = quantized_by_onnxruntime(net, tmp_path, **OPTIONS)
    source = onnx.load(tmp_path / "float.onnx")
    # The same function with its branches computed in another order, under names that mislead.
    first = [source.graph.node[at] for at in (2, 0, 3, 1, 4)]
    for at, each in enumerate(first[:4]):
        each.name = f"h{'abcd'[at]}_MatMul"
    proto = wrapped(first, [value("x", (2, 6))], [value("y", (2, 16))], list(source.graph.initializer))
    moved = read_quantized(model, float_model=loaded(proto, tmp_path))
    assert sorted(each.tensor for each in moved.quantizers if each.kind == "weight") == list("abcd")
    feed = random_feed({"x": (2, 6)})
    np.testing.assert_array_equal(read_back(moved, feed), reference(model, feed))


def test_branches_with_the_same_weights_are_not_confused(tmp_path: Path) -> None:
    def siamese(*, whole: bool, names: str) -> Any:
        """Two inputs through one layer; the activation in front is one node, or two."""
        nodes = []
        for side, name in zip("ab", names, strict=True):
            first = [node("HardSwish", [f"x{side}"], f"s{side}", name=f"act{name}")]
            parts = [
                node("HardSigmoid", [f"x{side}"], f"g{side}", name=f"gate{name}", alpha=1 / 6, beta=0.5),
                node("Mul", [f"x{side}", f"g{side}"], f"s{side}", name=f"times{name}"),
            ]
            nodes += first if whole else parts
            nodes += [node("MatMul", [f"s{side}", "w"], f"h{side}", name=f"layer{name}")]
            nodes += [node("Sigmoid", [f"h{side}"], f"y{side}", name=f"last{name}")]
        inputs = [value(f"x{side}", (2, 4)) for side in "ab"]
        return wrapped(nodes, inputs, [value(f"y{side}", (2, 3)) for side in "ab"], [weight("w", 4, 3)])

    shapes: dict[str, tuple[int, ...]] = {"xa": (2, 4), "xb": (2, 4)}
    model = quantized_by_onnxruntime((siamese(whole=False, names="12"), shapes), tmp_path, **OPTIONS)
    source = loaded(siamese(whole=True, names="78"), tmp_path)

    moved = read_quantized(model, float_model=source)

    mine = {each.name: each for each in read_quantized(model).quantizers}
    pairs = {"sa": "layer7", "sb": "layer8", "ha": "last7", "hb": "last8"}
    found = {each.name: each.consumers[0].node for each in moved.quantizers if each.name in pairs}
    assert found == {name: pairs[name] for name in found}
    assert {"ha", "hb"} <= set(found) <= set(mine)


def test_batch_normalization_that_was_folded(tmp_path: Path) -> None:
    statistics = {
        "g": [1.5, 0.5, 2.0, 1.0],
        "o": [0.1, -0.2, 0.0, 0.3],
        "m": [0.2, 0.1, -0.1, 0.0],
        "v": [1, 2, 0.5, 1],
    }
    nodes = [
        node("Conv", ["x", "w"], "c", name="conv"),
        node("BatchNormalization", ["c", "g", "o", "m", "v"], "b", name="bn", epsilon=1e-5),
        node("Relu", ["b"], "r", name="relu"),
        node("Conv", ["r", "w2"], "y", name="last"),
    ]
    held = [constant(name, np.array(values, np.float32)) for name, values in statistics.items()]
    held += [weight("w", 4, 2, 3, 3), weight("w2", 3, 4, 1, 1, seed=1)]
    original = loaded(wrapped(nodes, [value("x", (1, 2, 6, 6))], [value("y")], held), tmp_path)

    arrays = {name: np.array(values) for name, values in statistics.items()}
    gain = arrays["g"] / np.sqrt(arrays["v"] + 1e-5)
    folded = numpy_helper.to_array(weight("w", 4, 2, 3, 3)) * gain[:, None, None, None]
    shift = arrays["o"] - arrays["m"] * gain
    nodes = [
        node("Conv", ["x", "w", "shift"], "c", name="conv"),
        node("Relu", ["c"], "r", name="relu"),
        node("Conv", ["r", "w2"], "y", name="last"),
    ]
    held = [constant("w", folded.astype(np.float32)), constant("shift", shift.astype(np.float32)), held[-1]]
    shape: dict[str, tuple[int, ...]] = {"x": (1, 2, 6, 6)}
    net: Net = wrapped(nodes, [value("x", shape["x"])], [value("y", (1, 3, 4, 4))], held), shape
    model = quantized_by_onnxruntime(net, tmp_path, **OPTIONS)
    feed = random_feed(shape, seed=2)

    moved = read_quantized(model, float_model=original)

    assert [each.op_type for each in moved.float_model.proto.graph.node] == ["Conv", "Relu", "Conv"]
    assert any("was folded, as the quantized model is" in str(note) for note in moved.preparation)
    np.testing.assert_allclose(run_model(moved.float_model, feed)[0], run_model(original, feed)[0], atol=1e-5)
    np.testing.assert_array_equal(read_back(moved, feed), reference(model, feed))


def test_factors_that_were_folded(tmp_path: Path) -> None:
    gain = np.array([2.0, 0.5, 1.5], np.float32).reshape(3, 1, 1)
    kernel = weight("w", 3, 4, 1, 1)
    nodes = [node("Conv", ["x", "w"], "h", name="conv"), node("Mul", ["h", "gain"], "y", name="scale")]
    shape: dict[str, tuple[int, ...]] = {"x": (1, 4, 3, 3)}
    inputs, outputs = [value("x", shape["x"])], [value("y", (1, 3, 3, 3))]
    original = loaded(wrapped(nodes, inputs, outputs, [kernel, constant("gain", gain)]), tmp_path)
    folded = constant("w", numpy_helper.to_array(kernel) * gain[..., None])
    net: Net = wrapped([node("Conv", ["x", "w"], "y", name="conv")], inputs, outputs, [folded]), shape
    model = quantized_by_onnxruntime(net, tmp_path, **OPTIONS)
    feed = random_feed(shape)

    moved = read_quantized(model, float_model=original)

    assert [each.op_type for each in moved.float_model.proto.graph.node] == ["Conv"]
    np.testing.assert_array_equal(read_back(moved, feed), reference(model, feed))


def test_a_gemm_that_became_a_product_and_a_sum(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["x", "w"], "h", name="fc_MatMul"), node("Add", ["h", "b"], "y", name="fc_Add")]
    held = [weight("w", 4, 3), weight("b", 3, seed=1)]
    net: Net = wrapped(nodes, [value("x", (2, 4))], [value("y", (2, 3))], held), {"x": (2, 4)}
    model = quantized_by_onnxruntime(net, tmp_path, op_types_to_quantize=["MatMul"], **OPTIONS)
    turned = numpy_helper.to_array(held[0]).T.copy()
    gemm = wrapped(
        [node("Gemm", ["x", "w", "b"], "y", name="fc", transB=1)],
        [value("x", (2, 4))],
        [value("y")],
        [constant("w", turned), held[1]],
    )
    moved = read_quantized(model, float_model=loaded(gemm, tmp_path))
    weights = by_name(moved)["w"]
    assert (weights.tensor, weights.spec.axis, weights.consumers[0].node) == ("w", 0, "fc")
    assert weights.codes is None


def test_another_model_is_refused(tmp_path: Path) -> None:
    model = quantized_by_onnxruntime(NETS["mixed"], tmp_path, **OPTIONS)
    other = loaded(attention()[0], tmp_path)
    with pytest.raises(BadInput, match=r"of 14 quantizers of .* have no place in") as refused:
        read_quantized(model, float_model=other)
    assert refused.value.fix == "give the float model that was quantized, or none"


def test_weights_of_another_training_are_reported(tmp_path: Path) -> None:
    model = quantized_by_onnxruntime(NETS["conv"], tmp_path, **OPTIONS)
    retrained = onnx.load(tmp_path / "float.onnx")
    tensor = next(each for each in retrained.graph.initializer if each.name == "w1")
    tensor.CopyFrom(weight("w1", 4, 3, 3, 3, seed=99))
    moved = read_quantized(model, float_model=loaded(retrained, tmp_path))
    (oddity,) = [oddity for oddity in moved.oddities if oddity.kind == "disagreement"]
    assert oddity.node == "Conv1"
    assert "of the weights of 'Conv1' differ from the float model's by more than a step" in str(oddity.text)
    assert by_name(moved)["w1"].codes is not None
