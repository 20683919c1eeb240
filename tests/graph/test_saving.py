"""Models written and read again: in one file, in two, over others, and not at all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.insertion import bake_quantizers, deploy_model, fake_quant_model, insert_quantizers
from roundoff.graph.load import Model, load_model
from roundoff.graph.save import DeferredModel, packed, save_model
from roundoff.graph.weights import Weights
from tests.graph.quantized_nets import mixed_net, mixed_quantizers, run_model
from tests.models import loaded, value, with_if, wrapped

_IMAGE = {"image": np.random.default_rng(0).standard_normal((1, 3, 4, 4)).astype(np.float32)}
TINY = 2000
"""A limit that the small models of these tests exceed."""


def _outside(path: Path) -> set[str]:
    tensors = onnx.load(path, load_external_data=False).graph.initializer
    return {tensor.name for tensor in tensors if tensor.data_location == TensorProto.EXTERNAL}


def _large_net() -> Any:
    """A network whose first weight has a page of its own, behind a small one."""
    rng = np.random.default_rng(0)
    weights = {"bias": rng.random(300), "w": rng.random((300, 1000)), "tiny": rng.random(5), "u": rng.random(257)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], name="m"),
        helper.make_node("Add", ["x", "bias"], ["z"], name="a"),
        helper.make_node("Identity", ["tiny"], ["t"], name="t"),
        helper.make_node("Identity", ["u"], ["v"], name="u"),
    ]
    held = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    return wrapped(nodes, [value("x", (1, 300))], [value(name) for name in "yztv"], held)


def test_one_file(tmp_path: Path) -> None:
    model = loaded(mixed_net(), tmp_path)
    save_model(model, tmp_path / "new" / "copy.onnx")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["copy.onnx"]
    copy = load_model(tmp_path / "new" / "copy.onnx")
    assert copy.proto == model.proto
    np.testing.assert_array_equal(run_model(copy, _IMAGE)[0], run_model(model, _IMAGE)[0])


def test_two_files(tmp_path: Path) -> None:
    model = loaded(_large_net(), tmp_path)
    target = tmp_path / "large.onnx"
    save_model(model, target, largest_file=TINY)
    assert _outside(target) == {"w", "bias", "u"}
    proto = onnx.load(target, load_external_data=False)
    entries = {
        tensor.name: {entry.key: entry.value for entry in tensor.external_data}
        for tensor in proto.graph.initializer
    }
    assert {each["location"] for each in entries.values() if each} == {"large.onnx.data"}
    assert int(entries["w"]["offset"]) % 4096 == 0
    assert int(entries["u"]["offset"]) % 64 == 0
    assert target.stat().st_size < TINY
    feed = {"x": np.ones((1, 300), np.float32)}
    for got, expected in zip(
        ort.InferenceSession(str(target)).run(None, feed), run_model(model, feed), strict=True
    ):
        np.testing.assert_array_equal(got, expected)
    for name, array in Weights(model).items():
        np.testing.assert_array_equal(Weights(load_model(target))[name], array)


def test_weights_outside_are_copied_or_taken_in(tmp_path: Path) -> None:
    onnx.save(_large_net(), tmp_path / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)
    model = load_model(tmp_path / "m.onnx")
    save_model(model, tmp_path / "two.onnx", largest_file=TINY)
    save_model(model, tmp_path / "one.onnx")
    assert _outside(tmp_path / "two.onnx") == {"w", "bias", "u"}
    assert _outside(tmp_path / "one.onnx") == set()
    for name in ("one", "two"):
        again = Weights(load_model(tmp_path / f"{name}.onnx"))
        for tensor, array in Weights(model).items():
            np.testing.assert_array_equal(again[tensor], array)


@pytest.mark.parametrize("limit", [TINY, 10**9])
@pytest.mark.parametrize(
    ("defer", "at_once"), [(deploy_model, bake_quantizers), (fake_quant_model, insert_quantizers)]
)
def test_codes_are_computed_while_they_are_written(
    tmp_path: Path, limit: int, defer: Callable[..., DeferredModel], at_once: Callable[..., Model]
) -> None:
    model = loaded(mixed_net(), tmp_path)
    save_model(defer(model, mixed_quantizers()), tmp_path / "q.onnx", largest_file=limit)
    written = run_model(load_model(tmp_path / "q.onnx"), _IMAGE)[0]
    np.testing.assert_array_equal(written, run_model(at_once(model, mixed_quantizers()), _IMAGE)[0])


def test_weights_in_subgraphs_come_along(tmp_path: Path) -> None:
    proto = with_if()
    branch = proto.graph.node[3].attribute[0].g
    branch.initializer.append(numpy_helper.from_array(np.arange(600, dtype=np.float32), "inner"))
    branch.node[0].input[0] = "inner"
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)
    model = load_model(tmp_path / "m.onnx")
    for name, limit in (("one", 10**9), ("two", 100)):
        save_model(model, tmp_path / f"{name}.onnx", largest_file=limit)
        copy = onnx.load(tmp_path / f"{name}.onnx")
        inner = copy.graph.node[3].attribute[0].g.initializer[0]
        np.testing.assert_array_equal(numpy_helper.to_array(inner), np.arange(600))
    assert (tmp_path / "two.onnx.data").stat().st_size == 2400


def test_numbers_in_typed_fields_text_and_half_bytes(tmp_path: Path) -> None:
    typed = helper.make_tensor("typed", TensorProto.FLOAT, [300], list(map(float, range(300))))
    half = helper.make_tensor("half", TensorProto.FLOAT16, [3], [0.5, 1.5, 2.5])
    text = helper.make_tensor("text", TensorProto.STRING, [2], [b"a", b"bc"])
    small = helper.make_tensor("small", TensorProto.INT4, [3], [-8, 7, -1])
    empty = numpy_helper.from_array(np.zeros((0, 3), np.float32), "empty")
    held = [typed, half, text, small, empty]
    nodes = [helper.make_node("Identity", [each.name], [f"{each.name}_"]) for each in held]
    outputs = [value(f"{each.name}_", elem_type=each.data_type) for each in held]
    model = loaded(wrapped(nodes, [], outputs, held, opset=21, ir_version=10), tmp_path)
    for name, limit in (("one", 10**9), ("two", 100)):
        save_model(model, tmp_path / f"{name}.onnx", largest_file=limit)
        again = Weights(load_model(tmp_path / f"{name}.onnx"))
        for tensor in held:
            np.testing.assert_array_equal(again[tensor.name], numpy_helper.to_array(tensor))
    assert _outside(tmp_path / "two.onnx") == {"typed"}


@pytest.mark.parametrize("count", [1, 2, 5])
def test_two_codes_of_four_bits_share_a_byte(count: int) -> None:
    codes = np.array([-8, 7, -1, 3, 1])[:count]
    tensor = helper.make_tensor("t", TensorProto.INT4, [count], codes)
    assert packed(codes, tensor) == numpy_helper.from_array(numpy_helper.to_array(tensor)).raw_data


def test_nothing_is_overwritten_unless_asked(tmp_path: Path) -> None:
    model = loaded(_large_net(), tmp_path)
    target = tmp_path / "out.onnx"
    target.write_text("precious")
    with pytest.raises(BadInput, match=r"out\.onnx exists"):
        save_model(model, target)
    assert target.read_text() == "precious"
    save_model(model, target, replace=True)
    assert load_model(target).proto == model.proto
    target.unlink()
    (tmp_path / "out.onnx.data").write_text("precious")
    with pytest.raises(BadInput, match=r"out\.onnx\.data exists"):
        save_model(model, target, largest_file=100)
    save_model(model, target)  # needs no second file
    with pytest.raises(BadInput, match="is a folder"):
        save_model(model, tmp_path, replace=True)


def test_a_model_is_not_written_over_its_own_weights(tmp_path: Path) -> None:
    onnx.save(_large_net(), tmp_path / "m.onnx", save_as_external_data=True, location="m.onnx.data")
    model = load_model(tmp_path / "m.onnx")
    before = (tmp_path / "m.onnx.data").read_bytes()
    with pytest.raises(BadInput, match="holds weights of the model that is to be saved"):
        save_model(model, tmp_path / "m.onnx", largest_file=TINY, replace=True)
    assert (tmp_path / "m.onnx.data").read_bytes() == before


def test_what_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> Array:
        raise BadInput("The weights are gone.", fix="find them")

    model = loaded(mixed_net(), tmp_path)
    deferred = deploy_model(model, mixed_quantizers())
    broken = DeferredModel(deferred.model, {**deferred.arrays, "w3_codes": fail})
    with pytest.raises(BadInput, match="weights are gone"):
        save_model(broken, tmp_path / "out.onnx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx"]


def test_damaged_weights_are_not_passed_on(tmp_path: Path) -> None:
    model = loaded(mixed_net(), tmp_path)
    model.proto.graph.initializer[0].raw_data = b"\0" * 7
    with pytest.raises(BadInput, match="'w1' has 7 bytes of values; its type and shape need 432"):
        save_model(model, tmp_path / "out.onnx")
    onnx.save(_large_net(), tmp_path / "m.onnx", save_as_external_data=True, location="m.bin")
    model = load_model(tmp_path / "m.onnx")
    (tmp_path / "m.bin").write_bytes(b"short")
    with pytest.raises(BadInput, match=r"m\.bin ends \d+ bytes before the values of"):
        save_model(model, tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()
