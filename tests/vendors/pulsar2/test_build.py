"""pulsar2 build: the numbers against other ways to compute them, and what is written."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from roundoff.cli import main
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.interface import inputs
from roundoff.graph.load import load_model
from roundoff.graph.readers.reader import read_quantized
from roundoff.samples.sample_set import open_samples
from roundoff.studies.layers.study import LayerSettings, analyze_layers
from roundoff.vendors.pulsar2.build import BuildOptions, BuildResult, build
from roundoff.vendors.pulsar2.config.files import load_config
from roundoff.vendors.pulsar2.tables import Log, precision_table
from tests.models import save, value, weight, wrapped
from tests.vendors.pulsar2.nets import attentive, mixed, write_all, write_config, write_samples

Build = Callable[..., tuple[BuildResult, Log]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """Builds the mixed network, or what ``net.onnx`` is, with some settings, into ``out``."""
    monkeypatch.chdir(tmp_path)
    write_all(tmp_path, mixed(), precision_analysis=True)

    def run_build(*overrides: tuple[str, str | None], **quant: Any) -> tuple[BuildResult, Log]:
        if quant:
            write_config(tmp_path / "config.json", precision_analysis=True, **quant)
        given = [("input", "net.onnx"), ("output_dir", "out"), *overrides]
        log = Log()
        config = load_config(tmp_path / "config.json", given)
        return build(config, log, options=BuildOptions(force=True, record={"command": ["roundoff", "x"]})), log

    return run_build


def cosine(ours: Array, theirs: Array) -> float:
    a, b = ours.astype(np.float64).ravel(), theirs.astype(np.float64).ravel()
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def session(path: str) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def samples(count: int = 6) -> list[Array]:
    return [np.load(Path("calib") / f"{number:02}.npy") for number in range(count)]


# Numbers --------------------------------------------------------------------------------------------------------


def test_end_to_end_equals_running_both_models(run: Build) -> None:
    result, _ = run(("quant.precision_analysis_method", "EndToEnd"))
    float_model, quantized = session("net.onnx"), session("out/quant/quant_axmodel.onnx")
    pairs = [[each.run(None, {"image": feed})[0] for each in (float_model, quantized)] for feed in samples()]
    ours, theirs = (np.concatenate(side) for side in zip(*pairs, strict=True))
    assert result.analysis is not None
    row = result.analysis.rows[-1]
    assert (row.operator, row.type, row.qdtype) == ("logits_DequantizeLinear", "AxDequantizeLinear", "FP32")
    assert row.cosine == pytest.approx(cosine(ours, theirs), abs=1e-6)
    assert row.mse == pytest.approx(float(np.mean((ours - theirs) ** 2)), rel=1e-4)
    assert result.analysis.output_cosine == row.cosine


def test_per_layer_equals_one_layer_computed_by_hand(run: Build) -> None:
    result, _ = run()
    assert result.analysis is not None
    row = next(each for each in result.analysis.rows if each.operator == "conv2")
    document = json.loads(Path("out/quant/quant_axmodel.json").read_text())
    graph = onnx.load("out/frontend/optimized.onnx").graph
    wanted = [name for node in graph.node if node.name == "conv2" for name in (node.input[0], node.output[0])]
    model = onnx.load("out/frontend/optimized.onnx")
    model.graph.output.extend(value(name) for name in wanted)
    save(model, Path("tapped.onnx"))
    weights = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    conv = next(node for node in graph.node if node.name == "conv2")

    def numbers(tensor: str) -> tuple[Array, Array, dict[str, Any]]:
        config = document["tensor_configs"]["conv2"][tensor]
        values = document["values"].get(str(config["hash"])) or document["values"][str(config["dominator"])]
        return np.array(values["scale"], np.float32), np.array(values["zero_point"], np.int64), config

    def through(array: Array, tensor: str, axis: int | None = None) -> Array:
        scale, zero, config = numbers(tensor)
        shape = [-1 if place == axis else 1 for place in range(array.ndim)]
        scale, zero = scale.reshape(shape), zero.reshape(shape)
        codes = np.clip(np.rint(array / scale) + zero, config["quant_min"], config["quant_max"])
        return np.asarray((codes - zero) * scale, np.float32)

    single = save(
        wrapped(
            [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)],
            [value("x", (1, 4, 8, 8))],
            [value("y")],
            [numpy_helper.from_array(through(weights[conv.input[1]], conv.input[1], axis=0), "w")],
        ),
        Path("single.onnx"),
    )
    tapped, layer = session("tapped.onnx"), session(str(single))
    floats, found = [], []
    for feed in samples():
        read, written = tapped.run(wanted, {"image": feed})
        floats.append(written)
        found.append(through(layer.run(None, {"x": through(read, wanted[0])})[0], wanted[1]))
    assert row.cosine == pytest.approx(cosine(np.concatenate(floats), np.concatenate(found)), abs=1e-6)


@pytest.mark.parametrize("method", ["PerLayer", "EndToEnd"])
@pytest.mark.parametrize("mode", ["Reference", "NPUBackend"])
def test_rows_equal_those_of_the_model_read_again(run: Build, method: str, mode: str) -> None:
    result, _ = run(("quant.precision_analysis_method", method), ("quant.precision_analysis_mode", mode))
    assert result.analysis is not None
    written, optimized = (
        load_model(Path("out") / name) for name in ("quant/quant_axmodel.onnx", "frontend/optimized.onnx")
    )
    again = read_quantized(written, float_model=optimized)
    data = open_samples(Path("calib"), inputs(again.float_model))
    arithmetic = run_target().arithmetic
    settings = LayerSettings(
        "local" if method == "PerLayer" else "accumulated",
        "reference" if mode == "Reference" else "integer",
        arithmetic,
    )
    report = analyze_layers(again, data, settings)
    theirs = {row.tensor: row.local or row.accumulated for row in report.rows}
    assert len(result.analysis.rows) > 5
    for row in result.analysis.rows:
        score = theirs[row.tensor]
        assert score is not None
        assert row.cosine == pytest.approx(score.cosine, abs=1e-6)
        assert row.mse == pytest.approx(score.mse, rel=1e-3, abs=1e-9)


def run_target() -> Any:
    from roundoff.quantize.targets.files import load_target

    return load_target("axera-ax650")


def test_both_modes_agree_up_to_rounding(run: Build) -> None:
    reference, _ = run()
    integers, log = run(("quant.precision_analysis_mode", "NPUBackend"))
    assert reference.analysis is not None
    assert integers.analysis is not None
    for ours, theirs in zip(reference.analysis.rows, integers.analysis.rows, strict=True):
        assert ours.cosine == pytest.approx(theirs.cosine, abs=1e-3)
    assert integers.analysis.findings == ()
    assert not any("disagree" in line for line in log.lines)


def test_modes_that_disagree_are_a_finding(run: Build, tmp_path: Path) -> None:
    # The sum of 1,024 products of 16 and 8 bits does not fit into 32.
    array = np.abs(np.random.default_rng(0).normal(0, 1, (1024, 4))).astype(np.float32) + 1
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="wide")]
    net = wrapped(nodes, [value("x", (1, 1024))], [value("y", (1, 4))], [numpy_helper.from_array(array, "w")])
    save(net, tmp_path / "net.onnx")
    for path in (tmp_path / "calib").iterdir():
        path.unlink()
    for number in range(2):
        np.save(tmp_path / "calib" / f"{number}.npy", np.full((1, 1024), 1 + number, np.float32))
    result, log = run(
        ("quant.precision_analysis_mode", "NPUBackend"),
        layer_configs=[{"op_type": "MatMul", "data_type": "U16"}],
    )
    assert result.analysis is not None
    [finding] = result.analysis.findings
    assert (finding.operator, finding.tensor) == ("wide", "y")
    assert finding.share > 0
    assert any("Reference and NPUBackend disagree at wide" in line for line in log.lines)
    assert any("overflow at wide" in line for line in log.lines)


# What is written ------------------------------------------------------------------------------------------------


def test_the_folder(run: Build) -> None:
    result, _ = run()
    assert result.analysis is not None
    files = {path.relative_to("out").as_posix() for path in Path("out").rglob("*") if path.is_file()}
    assert {
        "build_context.json", "frontend/optimized.onnx", "quant/quant_axmodel.onnx", "quant/quant_axmodel.json",
        "quant/debug/precision_analysis_table.txt", "quant/debug/precision_analysis.mmd",
        "quant/debug/io/float/image.npy", "quant/debug/io/float/logits.npy", "quant/debug/io/quant/logits.npy",
        "quant/debug/numpy/float/a1.npy", "quant/debug/numpy/xrun/a1.npy", "quant/debug/numpy/names.json",
        "quant/debug/test_data_set_0/input_0.pb", "quant/debug/test_data_set_0/output_0.pb",
    } <= files  # fmt: skip
    table = Path("out/quant/debug/precision_analysis_table.txt").read_text(encoding="utf-8")
    assert table == precision_table(result.analysis.rows, method="PerLayer", mode="Reference") + "\n"


@pytest.mark.parametrize("mode", ["Reference", "NPUBackend"])
@pytest.mark.parametrize("method", ["PerLayer", "EndToEnd"])
def test_dumps_are_codes_and_outputs_are_values(run: Build, method: str, mode: str) -> None:
    run(("quant.precision_analysis_method", method), ("quant.precision_analysis_mode", mode))
    document = json.loads(Path("out/quant/quant_axmodel.json").read_text())
    config = document["tensor_configs"]["conv2"]["c2"]
    values = document["values"].get(str(config["hash"])) or document["values"][str(config["dominator"])]
    floats = np.load("out/quant/debug/numpy/float/c2.npy")
    codes = np.load("out/quant/debug/numpy/xrun/c2.npy")
    assert codes.dtype == np.uint8
    restored = (codes.astype(np.float64) - values["zero_point"][0]) * values["scale"][0]
    assert cosine(floats, restored) > 0.99
    logits = np.load("out/quant/debug/io/quant/logits.npy")
    assert logits.dtype == np.float32
    if method == "EndToEnd" and mode == "Reference":
        expected = session("out/quant/quant_axmodel.onnx").run(None, {"image": samples(1)[0]})[0]
        np.testing.assert_allclose(logits, expected, rtol=1e-6, atol=1e-7)


def test_test_data_is_what_the_float_model_computes(run: Build) -> None:
    run()
    folder = Path("out/quant/debug/test_data_set_0")
    feed, result = (
        numpy_helper.to_array(onnx.TensorProto.FromString((folder / name).read_bytes()))
        for name in ("input_0.pb", "output_0.pb")
    )
    np.testing.assert_array_equal(feed, samples(1)[0])
    np.testing.assert_allclose(session("net.onnx").run(None, {"image": feed})[0], result, rtol=1e-4, atol=1e-5)


def test_the_json_of_the_quantized_model(run: Build) -> None:
    run(layer_configs=[{"layer_name": "conv2", "data_type": "U16"}, {"op_type": "MatMul", "data_type": "FP32"}])
    document = json.loads(Path("out/quant/quant_axmodel.json").read_text())
    assert set(document) == {"tensor_configs", "values", "dispatchings", "quant_config"}
    conv = document["tensor_configs"]["conv2"]
    assert (conv["a1"]["bit_width"], conv["a1"]["quant_max"], conv["w2"]["state"]) == (16, 65535, "BAKED")
    assert conv["w2"]["policy"]["PER_CHANNEL"]
    assert len(document["values"][str(conv["w2"]["hash"])]["scale"]) == 4
    assert document["tensor_configs"]["classifier"]["b4"]["state"] == "PASSIVE_BAKED"
    assert document["tensor_configs"]["reshape1"]["shape"]["state"] == "SOI"
    hashes = [each["hash"] for op in document["tensor_configs"].values() for each in op.values()]
    assert len(set(hashes)) == len(hashes)
    for op in document["tensor_configs"].values():
        for each in op.values():
            if each["state"] not in ("FP32", "SOI"):
                assert {str(each["hash"]), str(each["dominator"])} & set(document["values"])
    assert document["dispatchings"]["conv2"] == "AX_NPU_AX650_INT16"
    settled = document["quant_config"]["mix_precision_configs"]
    assert [(each["selector"], each["applied"], each["matched"]) for each in settled] == [
        ("conv2", 1, 1),
        ("MatMul", 0, 2),
    ]


def test_the_record_of_the_build(run: Build) -> None:
    result, log = run(("quant.calibration_method", "KL"))
    record = json.loads(Path("out/build_context.json").read_text())
    Path("again.json").write_text(json.dumps(record["config"]))
    assert load_config(Path("again.json")) == load_config(
        Path("config.json"), [("input", "net.onnx"), ("output_dir", "out"), ("quant.calibration_method", "KL")]
    )
    assert record["command"] == ["roundoff", "x"]
    convolutions = 8 * 8 * 9 * (3 * 4 + 4 * 4 + 8 * 4)
    assert record["macs"] == convolutions + 2 * 64 * 64 * 4 + 256 * 10
    assert record["precision_analysis"]["rows"][0]["operator"] == "conv1"
    assert record["log"] == log.lines
    assert result.folder == Path("out")


def test_the_chart(run: Build) -> None:
    result, _ = run()
    assert result.analysis is not None
    lines = Path("out/quant/debug/precision_analysis.mmd").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "flowchart TD"
    assert '    legend["<u>PerLayer Reference</u>"]' in lines
    assert any('["image,None->None,None,None"]' in line for line in lines)
    first = result.analysis.rows[0]
    label = f"a1,(1, 4, 8, 8),FP32->U8,{first.cosine:.5f},{first.mse:.5f}"
    assert any(label in line and ":::good" in line for line in lines)
    assert any('-->|"Conv,conv1"|' in line for line in lines)
    assert "    classDef good fill:#2efe08" in lines


def test_a_result_of_others_is_not_replaced(run: Build) -> None:
    run()
    (Path("out") / "mine.txt").write_text("x")
    with pytest.raises(BadInput, match=r"holds files that roundoff did not write: mine\.txt"):
        run()


# Settings that change results -----------------------------------------------------------------------------------


def states(name: str = "out") -> set[str]:
    document = json.loads(Path(name, "quant/quant_axmodel.json").read_text())
    return {each["state"] for op in document["tensor_configs"].values() for each in op.values()}


def scales() -> dict[str, Any]:
    return dict(json.loads(Path("out/quant/quant_axmodel.json").read_text())["values"])


@pytest.mark.parametrize("method", ["MSE", "Percentile", "KL"])
def test_other_methods_are_compared_with_minmax(run: Build, method: str) -> None:
    run()
    plain = scales()
    result, log = run(("quant.calibration_method", method))
    same, total = result.outcome.same_as_minmax or (0, 0)
    assert total > 5
    if same == total:
        assert scales() == plain
        text = f"WARNING: {method} gave the scales of MinMax for all {total} activations: it changes nothing here"
        assert text in log.lines
    else:
        assert scales() != plain
        assert f"{method} gave other scales than MinMax for {total - same} of {total} activations" in log.lines


def test_float_biases(run: Build) -> None:
    run()
    assert "PASSIVE_BAKED" in states()
    run(("quant.conv_bias_data_type", "FP32"))
    assert "PASSIVE_BAKED" not in states()


def test_without_fusion_every_result_is_quantized(run: Build) -> None:
    plain, _ = run()
    result, _ = run(("quant.disable_quant_optimization", None))
    assert plain.analysis is not None
    assert result.analysis is not None
    assert {row.tensor for row in result.analysis.rows} - {row.tensor for row in plain.analysis.rows} == {"n1"}


def test_without_optimization_nothing_is_folded(run: Build) -> None:
    run()
    assert "BatchNormalization" not in {
        node.op_type for node in onnx.load("out/frontend/optimized.onnx").graph.node
    }
    result, log = run(("onnx_opt.disable_onnx_optimization", None), ("onnx_opt.model_check", None))
    assert "BatchNormalization" in {node.op_type for node in onnx.load("out/frontend/optimized.onnx").graph.node}
    assert result.analysis is not None
    assert all(row.cosine is not None and row.cosine > 0.98 for row in result.analysis.rows)
    assert any("model_check: the prepared model's outputs equal the original's" in line for line in log.lines)


def test_rounding_and_smoothing_take_part(run: Build) -> None:
    run()
    plain = session("out/quant/quant_axmodel.onnx").run(None, {"image": samples(1)[0]})[0]
    _, log = run(("quant.enable_adaround", "1"))
    rounded = session("out/quant/quant_axmodel.onnx").run(None, {"image": samples(1)[0]})[0]
    assert not np.array_equal(plain, rounded)
    assert any(line.startswith("round_weights: ") and "took part" in line for line in log.lines)
    _, log = run(("quant.enable_smooth_quant", None), ("quant.smooth_quant_threshold", "1"))
    assert any("Enable Smooth Quant" in line for line in log.lines)
    assert any(line.startswith("smooth: ") and "took part" in line for line in log.lines)


def test_a_mask_that_sets_the_scale_of_scores_is_named(run: Build, tmp_path: Path) -> None:
    masked = attentive(1)
    scaled = next(node for node in masked.graph.node if node.name == "softmax_0")
    masked.graph.initializer.append(
        numpy_helper.from_array(np.array([0, 0, 0, -3e38], np.float32).reshape(1, 1, 4), "mask")
    )
    place = list(masked.graph.node).index(scaled)
    masked.graph.node.insert(place, helper.make_node("Add", ["m0", "mask"], ["a0"], name="add_mask"))
    masked.graph.node[place + 1].input[0] = "a0"
    for model, named in ((masked, True), (attentive(1), False)):
        save(model, tmp_path / "net.onnx")
        write_samples(tmp_path / "calib", shape=(1, 4, 8))
        _, log = run()
        assert (
            any("a mask sets the scale of 1 tensor of attention scores: a0" in line for line in log.lines) == named
        )


def test_smoothing_inserts_a_product_where_nothing_takes_the_factors_up(run: Build, tmp_path: Path) -> None:
    """Behind a Swish, as behind a GELU, no factor can pass: without a Mul smoothing would do nothing."""
    generator = np.random.default_rng(0)
    kernel = generator.normal(0, 0.3, (16, 3, 1, 1)).astype(np.float32)
    kernel[0] *= 60
    nodes = [
        helper.make_node("Conv", ["image", "first"], ["c"], name="first_conv"),
        helper.make_node("Sigmoid", ["c"], ["s"], name="gate"),
        helper.make_node("Mul", ["c", "s"], ["swish"], name="swish_mul"),
        helper.make_node("Conv", ["swish", "second"], ["out"], name="second_conv"),
    ]
    last = generator.normal(0, 0.3, (8, 16, 1, 1)).astype(np.float32)
    last[:, 0] /= 60
    weights = [numpy_helper.from_array(kernel, "first"), numpy_helper.from_array(last, "second")]
    write_all(tmp_path, wrapped(nodes, [value("image", (1, 3, 8, 8))], [value("out", (1, 8, 8, 8))], weights))
    plain, _ = run(("quant.precision_analysis_method", "EndToEnd"), ("quant.precision_analysis", "1"))
    result, log = run(
        ("quant.enable_smooth_quant", None),
        ("quant.precision_analysis", "1"),
        ("quant.precision_analysis_method", "EndToEnd"),
    )
    (told,) = [line for line in log.lines if "inserted where" in line]
    assert "1 Mul was inserted where nothing takes the factors up: 1,024 multiplications more" in told
    assert plain.analysis is not None
    assert result.analysis is not None
    assert plain.analysis.output_cosine is not None
    assert result.analysis.output_cosine is not None
    # What is multiplied is kept with 16 bits: 8 would have lost already what the factors are there to keep.
    assert 1 - result.analysis.output_cosine < (1 - plain.analysis.output_cosine) / 2
    assert any("; 1 inserted Mul reads 16 bits" in line for line in log.lines)
    document = json.loads(Path("out/quant/quant_axmodel.json").read_text())
    [inserted] = [name for name in document["tensor_configs"] if name.endswith("_smooth")]
    assert document["tensor_configs"][inserted]["swish"]["bit_width"] == 16


def normed_twice(behind: bool) -> Any:
    """Products in a residual block, with three loud channels in its norms, which stand behind it or in front."""
    generator, width = np.random.default_rng(3), 32
    gains = [generator.normal(1, 0.15, width).astype(np.float32) for _ in range(2)]
    for gain in gains:
        gain[[3, 11, 20]] *= [20, 45, 60]
    # What is loud there is weighed little, as in trained networks.
    quiet = np.where(gains[1] > 5, 1 / gains[1], 1)[:, None]
    sizes = {"up": (width, 2 * width), "down": (2 * width, width), "head": (width, 6)}
    weights = {name: generator.normal(0, size[0] ** -0.5, size) for name, size in sizes.items()}
    weights = {name: each * quiet if name != "down" else each for name, each in weights.items()}
    order = ["norm1", "up", "relu", "down", "sum", "norm2", "head"]
    reads = {"sum": ["down", "norm1" if behind else "tokens"], "norm1": ["tokens"]}
    nodes = []
    for place, name in enumerate(order):
        inputs = reads.get(name, [order[place - 1]])
        if name in sizes:
            nodes.append(helper.make_node("MatMul", [*inputs, f"w_{name}"], [name], name=name))
        elif name.startswith("norm"):
            nodes.append(helper.make_node("LayerNormalization", [*inputs, f"g_{name}"], [name], name=name))
        else:
            nodes.append(helper.make_node({"relu": "Relu", "sum": "Add"}[name], inputs, [name], name=name))
    held = [numpy_helper.from_array(each.astype(np.float32), f"w_{name}") for name, each in weights.items()]
    held += [numpy_helper.from_array(gain, f"g_norm{place}") for place, gain in enumerate(gains, 1)]
    return wrapped(nodes, [value("tokens", (1, 8, width))], [value("head", (1, 8, 6))], held, opset=17)


@pytest.mark.parametrize(("behind", "inserted"), [(True, 1), (False, 0)])
def test_smoothing_helps_where_norms_have_loud_channels(
    run: Build, tmp_path: Path, *, behind: bool, inserted: int
) -> None:
    """Activations of 8 bits per tensor, on unseen samples: a norm that others read too gets a Mul behind it."""
    save(normed_twice(behind), tmp_path / "net.onnx")
    write_samples(tmp_path / "calib", shape=(1, 8, 32))
    unseen = np.random.default_rng(900).normal(0.2, 1, (24, 1, 8, 32)).astype(np.float32)
    wanted = np.concatenate([session("net.onnx").run(None, {"tokens": each})[0] for each in unseen])
    noise = []
    for more in ([], [("quant.enable_smooth_quant", None)]):
        _, log = run(("quant.precision_analysis", "0"), *more)
        network = session("out/quant/quant_axmodel.onnx")
        found = np.concatenate([network.run(None, {"tokens": each})[0] for each in unseen])
        noise.append(float(np.square(found.astype(np.float64) - wanted).mean()))
    assert noise[1] < noise[0] / 4, noise  # 6 dB
    (told,) = [line for line in log.lines if "enable_smooth_quant: outputs" in line]
    assert (f"; {inserted} inserted Mul" in told) == bool(inserted)


def test_smoothing_that_would_cost_is_left_out_and_said(run: Build) -> None:
    run()
    plain = Path("out/quant/quant_axmodel.onnx").read_bytes()
    all_of_it = [("quant.smooth_quant_threshold", "1"), ("quant.smooth_quant_strength", "0")]
    _, log = run(("quant.enable_smooth_quant", None), *all_of_it)
    assert any("enable_smooth_quant is left out: outputs" in line for line in log.lines)
    assert Path("out/quant/quant_axmodel.onnx").read_bytes() == plain


def test_a_configuration_called_prototxt_is_no_half_of_a_caffe_net(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_all(tmp_path, mixed())
    for name in ("a.caffemodel", "b.caffemodel"):
        Path(name).write_bytes(b"of another net")
    Path("config.prototxt").write_text(
        'input: "net.onnx"\noutput_dir: "out"\nquant { input_configs { tensor_name: "image" '
        'calibration_dataset: "calib" calibration_format: Numpy } }\n'
    )
    assert main(["pulsar2", "build", "--config", "config.prototxt"]) == 0, capsys.readouterr().err
    record = json.loads(next(tmp_path.rglob("build_context.json")).read_text())
    (config,) = [each for each in record["inputs"] if each["role"] == "config"]
    assert config["sha256"] == hashlib.sha256(Path("config.prototxt").read_bytes()).hexdigest()


def test_nothing_is_quantized_with_the_highest_mix_precision(run: Build) -> None:
    result, log = run(("quant.highest_mix_precision", "true"))
    assert result.outcome.quantized.quantizers == ()
    assert result.analysis is None
    assert any(
        line.startswith("WARNING: highest_mix_precision: every operation stays in FP32") for line in log.lines
    )
    feed = samples(1)[0]
    ours, theirs = (
        session(path).run(None, {"image": feed})[0] for path in ("net.onnx", "out/quant/quant_axmodel.onnx")
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_other_samples_for_the_analysis(run: Build) -> None:
    write_samples(Path("others"), 2)
    result, _ = run(("quant.input_sample_dir", "others"))
    assert result.analysis is not None
    assert len(result.analysis.samples) == 2
    with pytest.raises(BadInput, match="input_sample_dir nowhere is not a folder"):
        run(("quant.input_sample_dir", "nowhere"))


def test_the_log_comes_in_the_vendors_order(run: Build) -> None:
    _, log = run(layer_configs=[{"op_type": "Add", "data_type": "U16"}])
    text = "\n".join(log.lines)
    order = [
        "6 File(s) Loaded.", "save optimized onnx to [out/frontend/optimized.onnx]", "Quant Config Table",
        "Layer Config Table", "Transformer optimize level: 0", "Layer Config Resolution",
        "AX Set MixPrecision Pass Running ...", "AX Runtime Calibration Pass Running ...",
        "AX Parameter Baking Pass Running ...", "Network Snapshot", "Quantization Snapshot",
        "Network Quantization Finished.", "quant.axmodel export success", "export pb data to folder",
        "Quant Precision Table", "save precision analysis table to", "save precision analysis graph to",
        "compiled.axmodel is not written",
    ]  # fmt: skip
    places = [text.index(each) for each in order]
    assert places == sorted(places)
    assert text.count("compiled.axmodel") == 1


def test_models_that_are_quantized_already_are_refused(run: Build) -> None:
    with pytest.raises(BadInput, match="Models of the type QuantONNX are quantized already"):
        run(("model_type", "QuantONNX"))


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No model is given"):
        build(load_config(None, [("output_dir", "out")]), Log())
    with pytest.raises(BadInput, match="No folder is given"):
        build(load_config(None, [("input", str(tmp_path / "x.onnx"))]), Log())


def test_values_that_are_not_finite_are_not_passed_over(run: Build, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Log", ["image"], ["x"], name="logarithm"),
        helper.make_node("Conv", ["x", "w"], ["y"], name="conv"),
    ]
    save(
        wrapped(nodes, [value("image", (1, 3, 8, 8))], [value("y")], [weight("w", 2, 3, 3, 3)]),
        tmp_path / "net.onnx",
    )
    result, log = run(layer_configs=[{"op_type": "Conv", "weight_data_type": "FP32", "output_data_type": "FP32"}])
    assert result.analysis is not None
    assert result.analysis.rows[-1].cosine is None
    assert "WARNING: no cosine, as nothing finite can be compared: conv" in log.lines


def test_a_model_with_one_weight(run: Build, tmp_path: Path) -> None:
    nodes = [helper.make_node("Conv", ["image", "w"], ["y"], name="only")]
    save(
        wrapped(nodes, [value("image", (1, 3, 8, 8))], [value("y")], [weight("w", 2, 3, 1, 1)]),
        tmp_path / "net.onnx",
    )
    result, _ = run()
    assert result.analysis is not None
    assert [row.operator for row in result.analysis.rows] == ["y_DequantizeLinear"]
