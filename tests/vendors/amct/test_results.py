"""The models, records and files that come out of it."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import roundoff.vendors.amct.onnx as amct
from roundoff.core.quantizers import fake_quantize, quantize
from roundoff.graph.load import load_model
from roundoff.graph.readers.reader import read_quantized
from roundoff.vendors.amct.config import (
    ActivationSettings,
    AmctConfig,
    AmctLayerSettings,
    WeightSettings,
)
from roundoff.vendors.amct.layers import find_layers
from roundoff.vendors.amct.quantizers import weight_quantizers, weight_records
from roundoff.vendors.amct.records import read_records, write_records
from tests.models import loaded, save, value, weight, wrapped
from tests.vendors.amct.support import SHAPE, VECTORS, Work, batches, mixed_net, run_onnx, vectors


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


def test_shifted_sums_are_said(calibrated: Work, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    record = read_records(Path(calibrated.record))["conv1"]
    write_records(tmp_path / "shift.txt", {"conv1": replace(record, shift_bit=(3,) * 6)})
    amct.convert_model(calibrated.model, str(tmp_path / "shift.txt"), str(tmp_path / "s"))
    assert "sums of conv1 are shifted" in caplog.text
    proto = onnx.load(tmp_path / "s_deploy_model.onnx")
    packed = onnx.numpy_helper.to_array(
        next(t for t in proto.graph.initializer if t.name.endswith("dequant.param"))
    )
    assert set(packed >> np.uint64(32)) == {3}


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


def test_a_model_never_replaces_itself(calibrated: Work, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is read, and would be replaced"):
        amct.quantize_model(calibrated.config, calibrated.model, calibrated.model, calibrated.record)
    calibrated.run(batches(2))
    fake = calibrated.save("out/net")
    before = fake.read_bytes()
    with pytest.raises(ValueError, match="is read, and would be replaced"):
        amct.convert_qat_model(str(fake), str(tmp_path / "out/net"))
    assert fake.read_bytes() == before


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


def test_weights_are_rounded_as_their_record_says(calibrated: Work) -> None:
    fake = read_quantized(load_model(calibrated.save()))
    original = onnx.numpy_helper.to_array(
        next(tensor for tensor in onnx.load(calibrated.model).graph.initializer if tensor.name == "w3")
    )
    quantizer = next(each for each in fake.quantizers if each.name == "up.weight_quant")
    assert quantizer.spec.axis == 1
    error = np.abs(fake_quantize(original, quantizer.params, quantizer.spec) - original)
    assert error.max() <= quantizer.params.scale.max() * 0.5001


@vectors
def test_scales_and_codes_of_weights_are_the_vendors(tmp_path: Path) -> None:
    known = json.loads((VECTORS / "algo_golden_vectors.json").read_text(encoding="utf-8"))
    values = np.array(known["arq_weight"]["values"], np.float32).reshape(known["arq_weight"]["shape"])
    node = helper.make_node("Conv", ["image", "w"], ["y"], name="layer")
    held = onnx.numpy_helper.from_array(values, "w")
    model = loaded(wrapped([node], [value("image", (1, 3, 8, 8))], [value("y")], [held]), tmp_path)
    layers = find_layers(model, {"layer": "layer"})
    assert len(known["arq"]) >= 4
    for case in known["arq"]:
        weights = WeightSettings(bits=case["num_bits"], channel_wise=case["channel_wise"])
        settings = {"layer": AmctLayerSettings(True, ActivationSettings(), weights)}
        config = AmctConfig({}, 1, True, frozenset(), False, settings)
        records = weight_records(model, layers, config)
        np.testing.assert_allclose(records["layer"].scale_w, case["scale_w"], rtol=1e-6)
        (quantizer,) = weight_quantizers(layers, records)
        codes = quantize(values, quantizer.params, quantizer.spec)
        np.testing.assert_array_equal(codes.ravel(), case["int_weights"])
