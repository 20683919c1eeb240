"""From a float model over calibration in a stock onnxruntime to AMCT's models."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

import roundoff.vendors.amct.onnx as amct
from roundoff.core.quantization import fake_quantize, parameters_from_range
from roundoff.core.quantizer import QuantSpec
from roundoff.errors import BadInput
from roundoff.graph.load import load_model
from roundoff.graph.reading import read_quantized
from roundoff.quantize.calibration import Observer, observed_range
from roundoff.vendors.amct.records import read_records, write_records
from tests.models import save, value, weight, wrapped
from tests.vendors.amct.support import SHAPE, batches, mixed_net, run_onnx


class Work:
    """A folder with a model and the files of its quantization."""

    def __init__(self, folder: Path, net: Any = None, definition: str = "", batch_num: int = 2) -> None:
        self.folder = folder
        self.model = str(save(mixed_net() if net is None else net, folder / "net.onnx"))
        self.config, self.record, self.modified = (
            str(folder / name) for name in ("c.json", "record.txt", "modified.onnx")
        )
        defined = None
        if definition:
            (folder / "x.cfg").write_text(definition, encoding="utf-8")
            defined = str(folder / "x.cfg")
        amct.create_quant_config(self.config, self.model, batch_num=batch_num, config_defination=defined)

    def quantize(self) -> None:
        amct.quantize_model(self.config, self.model, self.modified, self.record)

    def run(self, feeds: list[Any], path: str = "") -> list[Any]:
        session = ort.InferenceSession(path or self.modified, amct.AMCT_SO)
        return [session.run(None, {"image": feed})[0] for feed in feeds]

    def save(self, prefix: str = "out/net", **options: Any) -> Path:
        amct.save_model(self.modified, self.record, f"{self.folder}/{prefix}", **options)
        return self.folder / f"{prefix}_fake_quant_model.onnx"


@pytest.fixture
def calibrated(tmp_path: Path) -> Work:
    work = Work(tmp_path)
    work.quantize()
    work.run(batches(2))
    return work


def test_runs_of_the_modified_model_write_the_record(calibrated: Work) -> None:
    records = read_records(Path(calibrated.record))
    assert list(records) == ["classifier", "conv1", "grouped", "pool", "product", "up"]
    observer = Observer()
    for batch in batches(2):
        observer.add(batch)
    spec = QuantSpec(8, True, False, smallest_scale=1.1920929e-7)
    params = parameters_from_range(*observed_range(observer.observation(), spec, "ifmr"), spec)
    assert records["conv1"].scale_d == pytest.approx(float(params.scale), rel=1e-6)
    assert records["conv1"].offset_d == int(params.zero_point)
    assert len(records["up"].scale_w) == 5
    assert records["pool"].scale_w == ()


def test_the_modified_model_has_quantized_weights_and_float_activations(calibrated: Work) -> None:
    proto = onnx.load(calibrated.modified)
    assert {"AscendQuant", "IFMR"} & {node.op_type for node in proto.graph.node} == set()
    feed = batches(1, seed=5)[0]
    found = run_onnx(calibrated.modified, feed)
    exact = run_onnx(calibrated.model, feed)
    assert 1e-6 < np.abs(found - exact).max() < 0.1 * np.abs(exact).max()


def test_transposed_convolutions_are_quantized_for_calibration_too(calibrated: Work) -> None:
    reads = {node.name: node for node in onnx.load(calibrated.modified).graph.node}
    assert reads["up"].input[1] != "w3"
    maker = next(node for node in reads.values() if reads["up"].input[1] in node.output)
    assert maker.op_type == "DequantizeLinear"


def test_fewer_batches_than_asked_for_cannot_be_saved(tmp_path: Path) -> None:
    work = Work(tmp_path, batch_num=3)
    work.quantize()
    work.run(batches(2))
    with pytest.raises(RuntimeError, match=r"2 of 3 batches were run") as caught:
        work.save()
    assert "3 times" in str(caught.value)
    work.run(batches(1))
    assert work.save().is_file()


def test_more_batches_than_asked_for_change_nothing(calibrated: Work) -> None:
    before = Path(calibrated.record).read_text(encoding="utf-8")
    calibrated.run([10 * batch for batch in batches(2)])
    assert Path(calibrated.record).read_text(encoding="utf-8") == before


def test_sessions_opened_on_bytes_count_too(tmp_path: Path, calibrated: Work) -> None:
    expected = read_records(Path(calibrated.record))
    calibrated.quantize()
    session = ort.InferenceSession(Path(calibrated.modified).read_bytes())
    for batch in batches(2):
        session.run(["logits"], {"image": batch})
    assert read_records(Path(calibrated.record)) == expected


def test_calibrating_without_sessions(calibrated: Work) -> None:
    expected = read_records(Path(calibrated.record))
    amct.unwatch()
    try:
        calibrated.quantize()
        calibrated.run(batches(2))
        assert read_records(Path(calibrated.record))["conv1"].scale_d is None
        amct.calibrate(calibrated.modified, ({"image": batch} for batch in batches(2)))
        assert read_records(Path(calibrated.record)) == expected
        calibrated.quantize()
        with pytest.raises(RuntimeError, match="batch_num 2, and the model was run 1 times"):
            amct.calibrate(calibrated.modified, [{"image": batches(1)[0]}])
        with pytest.raises(TypeError, match="not a value for each input"):
            amct.calibrate(calibrated.modified, [3])  # type: ignore[list-item]
    finally:
        amct.watch()


def test_watching_leaves_other_models_and_errors_alone(calibrated: Work) -> None:
    plain = ort.InferenceSession(calibrated.model)
    assert "run" not in vars(plain)
    calibrated.quantize()
    watched = ort.InferenceSession(calibrated.modified)
    with pytest.raises(ValueError, match="image"):
        watched.run(None, {"wrong": batches(1)[0]})
    with pytest.raises(Exception, match="nothing"):
        watched.run(["nothing"], {"image": batches(1)[0]})
    assert [each.name for each in watched.get_inputs()] == ["image"]
    amct.watch()
    amct.unwatch()
    assert "run" not in vars(ort.InferenceSession(calibrated.modified))
    assert not hasattr(ort.InferenceSession.__init__, "_roundoff_watches")
    amct.watch()


def test_the_fake_quant_model_runs_in_a_stock_onnxruntime(calibrated: Work) -> None:
    fake = calibrated.save()
    feed = batches(1, seed=9)[0]
    exact, found = run_onnx(calibrated.model, feed), run_onnx(fake, feed, amct.AMCT_SO)
    assert np.abs(found - exact).max() < 0.1 * np.abs(exact).max()
    ops = {node.op_type for node in onnx.load(fake).graph.node}
    assert {"QuantizeLinear", "DequantizeLinear"} <= ops
    onnx.checker.check_model(str(fake))


def test_all_forms_hold_the_same_quantizers_and_compute_the_same(calibrated: Work) -> None:
    fake = calibrated.save()
    chain = calibrated.save("out/chain", fake_quant_form="chain")
    deploy = calibrated.folder / "out/net_deploy_model.onnx"
    forms = [read_quantized(load_model(path)) for path in (fake, chain, deploy)]
    for form in forms:
        assert form.oddities == ()
    places = [
        {
            (each.node, each.input): (quantizer.spec.dtype, float(quantizer.params.scale.ravel()[0]),
                                      int(quantizer.params.zero_point.ravel()[0]))
            for quantizer in form.quantizers for each in quantizer.consumers
        }
        for form in forms
    ]  # fmt: skip
    assert set(places[0]) == set(places[1]) == set(places[2])
    for key, (dtype, scale, offset) in places[0].items():
        for other in places[1:]:
            assert other[key][0] == dtype
            assert other[key][1] == pytest.approx(scale, rel=1e-5)
            assert other[key][2] == offset
    feed = batches(1, seed=3)[0]
    np.testing.assert_allclose(run_onnx(chain, feed), run_onnx(fake, feed, amct.AMCT_SO), atol=1e-5)


def test_the_deploy_model_holds_whole_numbers(calibrated: Work) -> None:
    calibrated.save()
    proto = onnx.load(calibrated.folder / "out/net_deploy_model.onnx")
    nodes = {node.name: node for node in proto.graph.node}
    held = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    record = read_records(Path(calibrated.record))["grouped"]
    start = {each.name: each for each in nodes["grouped.quant"].attribute}
    assert start["scale"].f == pytest.approx(1 / (record.scale_d or 0), rel=1e-6)
    assert start["offset"].f == record.offset_d
    assert start["dst_type"].s == b"INT8"
    layer = nodes["grouped"]
    assert held[layer.input[1]].dtype == np.int8
    assert held[layer.input[2]].dtype == np.int32
    packed = held["grouped.dequant.param"]
    assert packed.dtype == np.uint64
    steps = np.float32(record.scale_d) * np.asarray(record.scale_w, np.float32)
    np.testing.assert_array_equal(packed, steps.view(np.uint32))
    bias = onnx.numpy_helper.to_array(
        next(t for t in onnx.load(calibrated.model).graph.initializer if t.name == "b2")
    )
    np.testing.assert_allclose(held[layer.input[2]], np.rint(bias / steps), atol=1)
    # The bias of a product is added before its sums are dequantized.
    assert nodes["product.dequant"].input[0] == nodes["plus"].output[0]
    assert held[nodes["plus"].input[1]].dtype == np.int32


def test_quantization_information_names_what_was_fused(calibrated: Work) -> None:
    calibrated.save()
    info = json.loads((calibrated.folder / "out/net_quant.json").read_text(encoding="utf-8"))
    ops = {entry["name"]: entry for entry in info["graph"][0]["op"]}
    for name in ("conv1", "conv1.quant", "conv1.dequant"):
        attributes = {each["key"]: each["value"] for each in ops[name]["attr"]}
        assert attributes["_datadump_original_op_names"]["list"]["s"] == ["conv1", "bn1"]
    described = {each["key"]: each["value"] for each in ops["conv1.dequant"]["output_desc"][0]["attr"]}
    assert described["_datadump_origin_name"] == {"s": "bn1"}
    assert described["_datadump_origin_output_index"] == {"i": 0}
    assert "output_desc" not in ops["conv1"]
    assert ops["relu1"]["type"] == "Relu"


def test_files_and_folders(calibrated: Work) -> None:
    calibrated.save("deep/er/")
    folder = calibrated.folder / "deep/er"
    assert sorted(each.name for each in folder.iterdir()) == [
        "deploy_model.onnx", "fake_quant_model.onnx", "quant.json"
    ]  # fmt: skip
    assert (folder / "deploy_model.onnx").stat().st_mode & 0o777 == 0o640
    with pytest.raises(ValueError, match="too long"):
        calibrated.save("x" * 242)
    with pytest.raises(TypeError, match="not a text"):
        amct.save_model(calibrated.modified, calibrated.record, 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="choose qdq or chain"):
        calibrated.save("out/x", fake_quant_form="none")


def test_layers_on_one_tensor_share_a_quantizer(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["image", "wa"], ["a"], name="left"),
        helper.make_node("Conv", ["image", "wb"], ["b"], name="right"),
        helper.make_node("Add", ["a", "b"], ["sum"], name="add"),
        helper.make_node("MaxPool", ["sum"], ["y"], name="max", kernel_shape=[2, 2]),
    ]
    net = wrapped(
        nodes, [value("image", SHAPE)], [value("y")], [weight("wa", 3, 4, 1, 1), weight("wb", 3, 4, 1, 1)]
    )
    definition = 'batch_num: 1 tensor_quantize { layer_name: "max" input_index: 0 }'
    work = Work(tmp_path, net, definition)
    work.quantize()
    work.run(batches(1))
    fake = work.save()
    assert "max:0" in read_records(Path(work.record))
    deploy = onnx.load(tmp_path / "out/net_deploy_model.onnx").graph.node
    ops = [node.op_type for node in deploy]
    assert ops.count("AscendQuant") == 2
    assert ops.count("AscendAntiQuant") == 1
    assert len(read_quantized(load_model(fake)).quantizers) == 4
    assert len(read_quantized(load_model(tmp_path / "out/net_deploy_model.onnx")).quantizers) == 4
    work = Work(tmp_path, net, 'tensor_quantize { layer_name: "left" input_index: 0 }')
    with pytest.raises(ValueError, match="an input of MaxPool or Add"):
        work.quantize()


def test_products_of_two_computed_inputs(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Transpose", ["image"], ["t"], name="turn", perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["image", "t"], ["y"], name="attention"),
    ]
    work = Work(tmp_path, wrapped(nodes, [value("image", SHAPE)], [value("y")]), "batch_num: 1")
    work.quantize()
    work.run(batches(1))
    fake = work.save()
    record = read_records(Path(work.record))["attention"]
    assert (record.offset_d, len(record.scale_w)) == (0, 1)
    feed = batches(1)[0]
    exact, found = run_onnx(work.model, feed), run_onnx(fake, feed, amct.AMCT_SO)
    assert np.abs(exact - found).max() < 0.05 * np.abs(exact).max()
    assert read_quantized(load_model(tmp_path / "out/net_deploy_model.onnx")).oddities == ()


@pytest.mark.parametrize(
    ("definition", "activation", "weights"),
    [
        ("common_config { ifmr_quantize { dst_type: INT16 } }", "s16", "s8"),
        ("common_config { arq_quantize { quant_bits: 4 } }", "s8", "s4"),
        ("common_config { arq_quantize { quant_bits: 7 } hfmg_quantize { } }", "s8", "s7"),
    ],
)
def test_other_widths(tmp_path: Path, definition: str, activation: str, weights: str) -> None:
    work = Work(tmp_path, definition=definition)
    work.quantize()
    work.run(batches(1))
    fake = work.save()
    found = {
        (consumer.node, consumer.input): each.spec.dtype
        for each in read_quantized(load_model(fake)).quantizers
        for consumer in each.consumers
    }
    assert found["conv1", 0] == activation
    # 7 bits are stored as 8 where the codes need no help.
    assert found["conv1", 1] in (weights, "s8")
    feed = batches(1)[0]
    exact = run_onnx(work.model, feed)
    assert np.abs(run_onnx(fake, feed, amct.AMCT_SO) - exact).max() < 0.3 * np.abs(exact).max()


def test_weights_of_four_bits_use_sixteen_codes(tmp_path: Path) -> None:
    work = Work(tmp_path, definition="common_config { arq_quantize { quant_bits: 4 } }")
    work.quantize()
    work.run(batches(1))
    work.save()
    proto = onnx.load(tmp_path / "out/net_deploy_model.onnx")
    layer = next(node for node in proto.graph.node if node.name == "conv1")
    codes = onnx.numpy_helper.to_array(next(t for t in proto.graph.initializer if t.name == layer.input[1]))
    assert codes.min() >= -8
    assert codes.max() <= 7
    assert abs(codes).max() >= 7


def test_half_precision(tmp_path: Path) -> None:
    work = Work(tmp_path, definition="fakequant_precision_mode: FORCE_FP16_QUANT")
    work.quantize()
    work.run(batches(1))
    work.save()
    for record in read_records(Path(work.record)).values():
        assert float(np.float16(record.scale_d or 0)) == pytest.approx(record.scale_d, rel=1e-6)
    proto = onnx.load(tmp_path / "out/net_deploy_model.onnx")
    packed = onnx.numpy_helper.to_array(
        next(t for t in proto.graph.initializer if t.name == "conv1.dequant.param")
    )
    assert np.all(packed & np.uint64(0x1FFF) == 0)


def test_symmetric_activations(tmp_path: Path) -> None:
    work = Work(tmp_path, definition="activation_offset: false")
    work.quantize()
    work.run(batches(1))
    assert {record.offset_d for record in read_records(Path(work.record)).values()} == {0}


def test_balanced_layers(tmp_path: Path) -> None:
    work = Work(tmp_path, definition="batch_num: 2 common_config { dmq_balancer { migration_strength: 0.5 } }")
    with pytest.raises(RuntimeError, match="run quantize_preprocess"):
        work.quantize()
    balance = str(tmp_path / "balance.onnx")
    amct.quantize_preprocess(work.config, work.record, work.model, balance)
    feeds = batches(2)
    found = work.run(feeds, balance)
    np.testing.assert_allclose(found[0], run_onnx(work.model, feeds[0]), atol=1e-5)
    factors = read_records(Path(work.record))["conv1"].tensor_balance_factor
    assert len(factors) == 4
    with pytest.raises(RuntimeError, match="was written by quantize_preprocess"):
        amct.save_model(balance, work.record, str(tmp_path / "x"))
    work.quantize()
    work.run(feeds)
    fake = work.save()
    records = read_records(Path(work.record))
    assert records["conv1"].tensor_balance_factor == pytest.approx(factors)
    exact = run_onnx(work.model, feeds[0])
    assert np.abs(run_onnx(fake, feeds[0], amct.AMCT_SO) - exact).max() < 0.1 * np.abs(exact).max()
    names = [node.name for node in onnx.load(tmp_path / "out/net_deploy_model.onnx").graph.node]
    assert names.index("conv1.mul") < names.index("conv1.quant") < names.index("conv1")
    amct.convert_model(work.model, work.record, str(tmp_path / "again"))
    again = run_onnx(tmp_path / "again_fake_quant_model.onnx", feeds[0], amct.AMCT_SO)
    np.testing.assert_allclose(again, run_onnx(fake, feeds[0], amct.AMCT_SO), atol=1e-5)


def test_nothing_to_balance(tmp_path: Path) -> None:
    work = Work(tmp_path)
    with pytest.raises(RuntimeError, match="No layer of the configuration"):
        amct.quantize_preprocess(work.config, work.record, work.model, work.modified)


def test_factors_found_elsewhere(calibrated: Work, tmp_path: Path) -> None:
    fake = calibrated.save()
    records = read_records(Path(calibrated.record))
    amct.convert_model(calibrated.model, calibrated.record, str(tmp_path / "conv"))
    feed = batches(1)[0]
    expected = run_onnx(fake, feed, amct.AMCT_SO)
    found = run_onnx(tmp_path / "conv_fake_quant_model.onnx", feed, amct.AMCT_SO)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    other = tmp_path / "other.txt"
    write_records(other, {"conv1": records["conv1"]})
    amct.convert_model(calibrated.model, str(other), str(tmp_path / "part"))
    ops = [node.op_type for node in onnx.load(tmp_path / "part_deploy_model.onnx").graph.node]
    assert ops.count("AscendQuant") == 1
    for bad, message in (({"conv7": records["conv1"]}, "no layer of that name"), ({}, "holds no record")):
        write_records(other, bad)
        with pytest.raises(ValueError, match=message):
            amct.convert_model(calibrated.model, str(other), str(tmp_path / "bad"))
    assert not (tmp_path / "bad_deploy_model.onnx").exists()


def test_models_trained_with_quantization(calibrated: Work, tmp_path: Path) -> None:
    fake = calibrated.save()
    record = tmp_path / "qat.txt"
    amct.convert_qat_model(str(fake), str(tmp_path / "qat"), str(record))
    assert read_records(record) == {
        name: each for name, each in read_records(Path(calibrated.record)).items() if name in read_records(record)
    }
    assert set(read_records(record)) == set(read_records(Path(calibrated.record)))
    feed = batches(1)[0]
    found = run_onnx(tmp_path / "qat_fake_quant_model.onnx", feed, amct.AMCT_SO)
    np.testing.assert_allclose(found, run_onnx(fake, feed, amct.AMCT_SO), atol=1e-5)
    with pytest.raises(ValueError, match="No layer of"):
        amct.convert_qat_model(calibrated.model, str(tmp_path / "none"))


def test_unsigned_codes_become_signed(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["image", "s", "z"], ["q"], name="q"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], name="d"),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], name="wd", axis=0),
        helper.make_node("Conv", ["d", "wd"], ["y"], name="layer"),
    ]
    held = {
        "s": np.float32(0.02), "z": np.uint8(100), "ws": np.array([0.1, 0.2], np.float32),
        "wz": np.zeros(2, np.int8),
        "w": np.arange(-4, 4, dtype=np.int8).reshape(2, 4, 1, 1),
    }  # fmt: skip
    constants = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in held.items()]
    path = save(wrapped(nodes, [value("image", SHAPE)], [value("y")], constants), tmp_path / "qat.onnx")
    amct.convert_qat_model(str(path), str(tmp_path / "out"), str(tmp_path / "r.txt"))
    record = read_records(tmp_path / "r.txt")["layer"]
    assert record.offset_d == -28
    assert record.scale_d == pytest.approx(0.02)
    assert record.scale_w == pytest.approx((0.1, 0.2))
    feed = batches(1)[0]
    found = run_onnx(tmp_path / "out_fake_quant_model.onnx", feed, amct.AMCT_SO)
    np.testing.assert_allclose(found, run_onnx(path, feed, amct.AMCT_SO), atol=1e-5)


def test_a_layer_with_the_name_of_a_key(tmp_path: Path) -> None:
    net = mixed_net()
    net.graph.node[0].name = "version"
    with pytest.raises(ValueError, match="is called 'version'"):
        Work(tmp_path, net)


def test_learned_rounding_is_not_offered(tmp_path: Path) -> None:
    work = Work(tmp_path, definition="common_config { ada_quantize { } }")
    with pytest.raises(RuntimeError, match="ada_quantize is not offered"):
        work.quantize()


def test_a_bias_that_would_not_fit_gets_room(tmp_path: Path) -> None:
    net = mixed_net()
    for tensor in net.graph.initializer:
        if tensor.name == "w2":
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.full((6, 3, 3, 3), 1e-6, np.float32), "w2"))
        if tensor.name == "b2":
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.full(6, 1e4, np.float32), "b2"))
    work = Work(tmp_path, net, "batch_num: 1")
    work.quantize()
    work.run(batches(1))
    fake = work.save()
    assert np.isfinite(run_onnx(fake, batches(1)[0], amct.AMCT_SO)).all()


def test_models_that_are_not_modified_ones(calibrated: Work) -> None:
    with pytest.raises(RuntimeError, match="was not written by quantize_model"):
        amct.save_model(calibrated.model, calibrated.record, "x")
    with pytest.raises(RuntimeError, match="was not written by quantize_model"):
        amct.calibrate(calibrated.model, [])
    with pytest.raises(BadInput):
        amct.save_model(calibrated.modified, "nowhere.txt", "x")


def test_messages_go_to_a_file_only_when_asked(calibrated: Work, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert not (tmp_path / "amct_log").exists()
    path = amct.log_to()
    try:
        calibrated.quantize()
        calibrated.run(batches(2))
        assert " - INFO - [AMCT]:[gathering]: batches seen: 2" in path.read_text(encoding="utf-8")
        assert path.samefile(tmp_path / "amct_log" / "amct_onnx.log")
    finally:
        from roundoff.vendors.amct.listening import LOGGER

        for handler in list(LOGGER.handlers):
            handler.close()
            LOGGER.removeHandler(handler)


def test_weights_are_rounded_as_their_record_says(calibrated: Work) -> None:
    fake = read_quantized(load_model(calibrated.save()))
    original = onnx.numpy_helper.to_array(
        next(tensor for tensor in onnx.load(calibrated.model).graph.initializer if tensor.name == "w3")
    )
    quantizer = next(each for each in fake.quantizers if each.name == "up.weight_quant")
    assert quantizer.spec.axis == 1
    error = np.abs(fake_quantize(original, quantizer.params, quantizer.spec) - original)
    assert error.max() <= quantizer.params.scale.max() * 0.5001
