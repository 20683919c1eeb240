from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from roundoff.errors import ModelFailed
from roundoff.graph.load import Model, load_model
from roundoff.graph.subgraph import tap
from roundoff.run.session import available_threads, open_session, share_threads
from tests.models import conv_net, loaded, random_feed, residual, save, single_node, two_outputs, value, wrapped

FEED = random_feed({"image": (1, 3, 8, 8)})
RELU = helper.make_node("Relu", ["x"], ["y"])
X = value("x", (2, 4))


def failure(model: Any, folder: Path) -> ModelFailed:
    with pytest.raises(ModelFailed) as caught:
        open_session(loaded(model, folder))
    return caught.value


def test_own_outputs_by_default(tmp_path: Path) -> None:
    low, gate = open_session(loaded(two_outputs(), tmp_path)).run(random_feed({"x": (1, 4, 3)}))

    assert low.shape == gate.shape == (1, 2, 3)


def test_taps_come_in_the_order_asked_and_agree_with_numpy(tmp_path: Path) -> None:
    model = loaded(residual(), tmp_path)
    c, a, total, b = open_session(model, outputs=tap(model, ["c", "a", "sum", "b"])).run(FEED)

    np.testing.assert_array_equal(c, np.maximum(b, 0))
    np.testing.assert_array_equal(total, a + c)


def test_taps_threads_and_memory_do_not_change_results(tmp_path: Path) -> None:
    model = loaded(conv_net(), tmp_path)
    names = ["conv1", "relu1", "conv2", "logits"]
    plain = open_session(model, threads=1).run(FEED)[0]
    for options in ({"threads": 1}, {"threads": 2}, {"keep_memory": False}, {"optimize": True}):
        np.testing.assert_array_equal(
            open_session(model, outputs=tap(model, names), **options).run(FEED)[-1], plain
        )


def test_float_weights_between_quantized_activations_stay_float(tmp_path: Path) -> None:
    """Onnxruntime would quantize them by itself, from its basic optimizations on."""
    weight = np.random.default_rng(1).normal(size=(4, 3, 3, 3)).astype(np.float32)
    params = [numpy_helper.from_array(np.float32(0.05), "s"), numpy_helper.from_array(np.uint8(128), "z")]
    pairs = [
        helper.make_node(op, [source, "s", "z"], [target])
        for source, target, op in (
            ("x", "xq", "QuantizeLinear"),
            ("xq", "xd", "DequantizeLinear"),
            ("c", "cq", "QuantizeLinear"),
            ("cq", "y", "DequantizeLinear"),
        )
    ]
    nodes = [*pairs[:2], helper.make_node("Conv", ["xd", "w"], ["c"], name="conv"), *pairs[2:]]
    ends = [value("x", (1, 3, 8, 8))], [value("y", (1, 4, 6, 6))]
    model = loaded(wrapped(nodes, *ends, [*params, numpy_helper.from_array(weight, "w")]), tmp_path)
    feed = random_feed({"x": (1, 3, 8, 8)})
    plain = open_session(model).run(feed)[0]
    np.testing.assert_array_equal(open_session(model, optimize=True).run(feed)[0], plain)


def test_nothing_asked_nothing_run(tmp_path: Path) -> None:
    model = loaded(conv_net(), tmp_path)

    assert open_session(model, outputs=tap(model, [])).run(FEED) == []


def test_types_are_reported(tmp_path: Path) -> None:
    model = loaded(conv_net(), tmp_path)

    assert open_session(model, outputs=tap(model, ["relu1"])).types == ("tensor(float)",)


def test_an_unsupported_ir_version(tmp_path: Path) -> None:
    error = failure(single_node(RELU, [X], ir_version=99), tmp_path)

    assert "Unsupported model IR version: 99, max supported IR version" in error.what
    assert "onnxruntime_src" not in error.what
    assert "set model.ir_version to" in error.fix
    assert error.exit_code == 4


def test_an_unsupported_opset(tmp_path: Path) -> None:
    error = failure(single_node(RELU, [X], opset=99), tmp_path)

    assert "Opset 99 is under development" in error.what
    assert "onnx.version_converter.convert_version(model, " in error.fix


@pytest.mark.parametrize("domain", ["", "acme"])
def test_an_unknown_operator(tmp_path: Path, domain: str) -> None:
    error = failure(single_node(helper.make_node("Frobnicate", ["x"], ["y"], domain=domain), [X]), tmp_path)

    assert "Frobnicate" in error.what
    assert "standard operators" in error.fix


def test_an_operator_without_a_kernel_for_its_types(tmp_path: Path) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    weights = [helper.make_tensor("w", TensorProto.BFLOAT16, (1, 1, 1, 1), [1.0])]
    inputs, outputs = ([value(name, (1, 1, 2, 2), TensorProto.BFLOAT16)] for name in "xy")
    model = wrapped([node], inputs, outputs, weights, opset=22, ir_version=10)

    assert "convert the model to float32" in failure(model, tmp_path).fix


def test_a_model_that_is_not_well_formed(tmp_path: Path) -> None:
    error = failure(single_node(helper.make_node("Relu", ["nowhere"], ["y"]), [X]), tmp_path)

    assert "Node input 'nowhere' is not a graph input" in error.what
    assert "onnx.checker.check_model" in error.fix


def test_a_failing_run_names_node_sample_and_reason(tmp_path: Path) -> None:
    shape = numpy_helper.from_array(np.array([3, 3]), "shape")
    node = helper.make_node("Reshape", ["x", "shape"], ["y"], name="bend")
    session = open_session(loaded(single_node(node, [value("x", ("N", 4))], [shape]), tmp_path))

    with pytest.raises(ModelFailed) as caught:
        session.run(random_feed({"x": (2, 4)}), sample="cat.npy")

    assert "model.onnx failed on sample 'cat.npy': " in caught.value.what
    assert "'bend'" in caught.value.what
    assert "cannot be reshaped" in caught.value.what
    assert "reshape_helper" not in caught.value.what


def test_failures_stay_off_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    failure(single_node(RELU, [X], opset=99), tmp_path)

    assert capfd.readouterr() == ("", "")


def test_not_even_a_message_that_is_not_text_reaches_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = save(single_node(helper.make_node("LeakyRelu", ["x"], ["y"], alpha=0.5), [X]), tmp_path / "model.onnx")
    path.write_bytes(path.read_bytes().replace(b"alpha", b"\xff\xfe\xff\xfe\xff"))

    with pytest.raises(ModelFailed, match=r"cannot open .*model\.onnx"):
        open_session(load_model(path))

    assert capfd.readouterr() == ("", "")


def test_at_least_one_thread_is_there() -> None:
    assert available_threads() >= 1
    assert sum(share_threads()) >= available_threads()


@pytest.mark.parametrize(("total", "shares"), [(1, (1, 1)), (2, (1, 1)), (3, (2, 1)), (8, (4, 4))])
def test_threads_are_shared_between_running_and_reading(total: int, shares: tuple[int, int]) -> None:
    assert share_threads(total) == shares


def test_constants_can_be_given_beside_the_model(tmp_path: Path) -> None:
    weights = np.arange(8, dtype=np.float32).reshape(4, 2)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    declared = TensorProto(name="w", dims=(4, 2), data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    declared.external_data.add(key="location", value="nowhere")
    proto = wrapped(nodes, [X], [value("y", (2, 2))], [declared])
    model = Model(proto, tmp_path / "model.onnx", 0)
    taps = replace(tap(model, ["y"]), constants={"w": weights})
    x = np.ones((2, 4), np.float32)

    np.testing.assert_array_equal(open_session(model, outputs=taps).run({"x": x})[0], x @ weights)


def test_runs_in_several_threads_can_be_stopped_together(tmp_path: Path) -> None:
    session = open_session(loaded(conv_net(), tmp_path))
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda _: session.run(FEED)[0], range(6)))
    for result in results:
        np.testing.assert_array_equal(result, results[0])
    session.stop()  # with nothing under way this changes nothing
    np.testing.assert_array_equal(session.run(FEED)[0], results[0])
