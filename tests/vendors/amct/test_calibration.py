"""Calibration in a stock onnxruntime: what the runs of a modified model teach."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import roundoff.vendors.amct.onnx as amct
from roundoff.core.quantizers import QuantSpec, parameters_from_range
from roundoff.errors import BadInput
from roundoff.quantize.calibration.calibration import observed_range
from roundoff.quantize.calibration.observer import Observer
from roundoff.vendors.amct.records import read_records
from tests.vendors.amct.support import Work, batches, mixed_net, run_onnx


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


def test_the_metadata_of_a_model_cannot_replace_other_files(calibrated: Work) -> None:
    precious = Path(calibrated.record)
    for content in ("dear diary", None):
        calibrated.quantize()
        precious.unlink()
        if content is not None:
            precious.write_text(content, encoding="utf-8")
        with pytest.raises(BadInput):
            calibrated.run(batches(2))
        assert (precious.read_text(encoding="utf-8") if precious.exists() else None) == content


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


def test_a_layer_with_the_name_of_a_key(tmp_path: Path) -> None:
    net = mixed_net()
    net.graph.node[0].name = "version"
    with pytest.raises(ValueError, match="is called 'version'"):
        Work(tmp_path, net)


def test_learned_rounding_is_not_offered(tmp_path: Path) -> None:
    work = Work(tmp_path, definition="common_config { ada_quantize { } }")
    with pytest.raises(RuntimeError, match="ada_quantize is not offered"):
        work.quantize()


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
        assert " - INFO - [AMCT]:[observation]: batches seen: 2" in path.read_text(encoding="utf-8")
        assert path.samefile(tmp_path / "amct_log" / "amct_onnx.log")
    finally:
        from roundoff.vendors.facade import AMCT_LOGGER

        for handler in list(AMCT_LOGGER.handlers):
            handler.close()
            AMCT_LOGGER.removeHandler(handler)


def test_results_without_a_prefix_and_runs_in_threads(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    work = Work(tmp_path, batch_num=4)
    work.quantize()
    session = ort.InferenceSession(work.modified, amct.AMCT_SO)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda feed: session.run(None, {"image": feed})[0], batches(4)))
    expected = [run_onnx(work.modified, feed, amct.AMCT_SO) for feed in batches(4)]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert work.save("flat/").name == "_fake_quant_model.onnx"
    assert (tmp_path / "flat" / "fake_quant_model.onnx").is_file()
