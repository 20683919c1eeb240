"""What the user gave is never written over, and errors are of the vendor's kinds."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import roundoff.vendors.amct.onnx as amct
from roundoff.vendors.amct.records import read_records
from tests.models import value, weight, wrapped
from tests.vendors.amct.support import Work, batches, run_onnx


class Evaluator:
    def calibration(self, model: str) -> None:
        amct.calibrate(model, [{"image": each} for each in batches(2)])

    def evaluate(self, model: str) -> float:
        return 1.0

    def metric_eval(self, original: float, new: float) -> tuple[bool, float]:
        return True, original - new


def _hashes(folder: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if path.is_file()
    }


@pytest.fixture
def work(tmp_path: Path) -> Work:
    made = Work(tmp_path, definition="batch_num: 2\n")
    made.quantize()
    made.run(batches(2))
    return made


CLASHES: list[Callable[[Work], Any]] = [
    lambda w: amct.create_quant_config(w.model, w.model),
    lambda w: amct.create_quant_config(f"{w.folder}/x.cfg", w.model, config_defination=f"{w.folder}/x.cfg"),
    lambda w: amct.create_quant_config(w.config, w.model, updated_model=w.model),
    lambda w: amct.create_quant_config(w.config, w.model, updated_model=w.config),
    lambda w: amct.quantize_model(w.config, w.model, w.model, w.record),
    lambda w: amct.quantize_model(w.config, w.model, w.config, w.record),
    lambda w: amct.quantize_model(w.config, w.model, w.modified, w.config),
    lambda w: amct.quantize_model(w.config, w.model, w.modified, w.model),
    lambda w: amct.quantize_model(w.config, w.model, f"{w.folder}/new", f"{w.folder}/./new"),
    lambda w: amct.quantize_preprocess(w.config, w.config, w.model, w.modified),
    lambda w: amct.save_model(w.modified, f"{w.folder}/a_quant.json", f"{w.folder}/a"),
    lambda w: amct.convert_model(w.model, f"{w.folder}/a_quant.json", f"{w.folder}/a"),
    lambda w: amct.convert_qat_model(w.model, f"{w.folder}/a", w.model),
    lambda w: amct.accuracy_based_auto_calibration(w.model, Evaluator(), w.config, w.config, f"{w.folder}/a"),
    lambda w: amct.accuracy_based_auto_calibration(w.model, Evaluator(), w.config, w.model, f"{w.folder}/a"),
]


@pytest.mark.parametrize("call", CLASHES)
def test_files_of_the_users_are_never_written_over(call: Callable[[Work], Any], work: Work) -> None:
    (work.folder / "a_quant.json").write_bytes(Path(work.record).read_bytes())
    before = _hashes(work.folder)
    with pytest.raises(ValueError, match=r"would be (replaced|written)"):
        call(work)
    assert _hashes(work.folder) == before


def test_links_do_not_hide_a_file_of_the_users(work: Work) -> None:
    link = work.folder / "link.json"
    link.symlink_to(work.model)
    with pytest.raises(ValueError, match="is read"):
        amct.create_quant_config(str(link), work.model)


def test_a_search_from_an_earlier_final_configuration_does_not_rewrite_it(work: Work) -> None:
    name = "accuracy_based_auto_calibration_final_config.json"
    final = Path(work.config).rename(work.folder / name)
    with pytest.raises(ValueError, match="is read"):
        amct.accuracy_based_auto_calibration(work.model, Evaluator(), str(final), work.record, f"{work.folder}/a")


@pytest.mark.parametrize(
    "call",
    [
        lambda w: amct.create_quant_config(w.config, "missing.onnx"),
        lambda w: amct.create_quant_config("/proc/none/c.json", w.model),
        lambda w: amct.quantize_model("missing.json", w.model, w.modified, w.record),
        lambda w: amct.save_model(w.modified, "missing.txt", f"{w.folder}/a"),
        lambda w: amct.save_model(w.model, w.record, f"{w.folder}/a"),
        lambda w: amct.convert_qat_model("missing.onnx", f"{w.folder}/a"),
    ],
)
def test_errors_are_of_the_kinds_that_scripts_expect(call: Callable[[Work], Any], work: Work) -> None:
    with pytest.raises((TypeError, ValueError, RuntimeError)) as caught:
        call(work)
    assert "fix: " in str(caught.value)
    assert "-o" not in str(caught.value).split("fix: ")[1]


def test_groups_of_a_transposed_convolution_have_a_scale_for_each_output_channel(tmp_path: Path) -> None:
    node = helper.make_node("ConvTranspose", ["image", "w", "b"], ["y"], name="up", group=2, strides=[2, 2])
    weights = [weight("w", 4, 3, 2, 2, seed=1), weight("b", 6, seed=2)]
    work = Work(tmp_path, wrapped([node], [value("image", (2, 4, 8, 8))], [value("y", (2, 6, 16, 16))], weights))
    work.quantize()
    work.run(batches(2))
    fake = work.save()
    scales = read_records(Path(work.record))["up"].scale_w
    assert len(scales) == 6
    assert scales[:3] == scales[3:]
    image = batches(1, seed=5)[0]
    ours, theirs = run_onnx(fake, image, amct.AMCT_SO), run_onnx(work.model, image)
    assert np.abs(ours - theirs).max() < 0.05 * np.abs(theirs).max()
    amct.convert_model(work.model, work.record, f"{tmp_path}/again/net")
    again = run_onnx(tmp_path / "again/net_fake_quant_model.onnx", image, amct.AMCT_SO)
    np.testing.assert_array_equal(again, ours)
    text = Path(work.record).read_text(encoding="utf-8")
    first = text.split("scale_w: ")[1].split("\n")[0]
    other = tmp_path / "other.txt"
    other.write_text(text.replace(f"scale_w: {first}", "scale_w: 0.5", 1), encoding="utf-8")
    with pytest.raises(ValueError, match="other scales of weights in each of its groups"):
        amct.convert_model(work.model, str(other), f"{tmp_path}/third/net")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"version": 1, "batch_num": ' + b"9" * 5000 + b"}", "too many digits"),
        (b'{"a":' * 50_000, "nested too deep"),
        (b"\xff\xfe{", "is not JSON"),
    ],
    ids=["digits", "depth", "bytes"],
)
def test_hostile_configurations_are_refused(content: bytes, message: str, work: Work) -> None:
    Path(work.config).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        work.quantize()


def test_a_configuration_may_begin_with_a_byte_order_mark(work: Work) -> None:
    Path(work.config).write_bytes(b"\xef\xbb\xbf" + Path(work.config).read_bytes())
    work.quantize()


def test_names_in_messages_are_shortened(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="skip_layers names") as caught:
        Work(tmp_path, definition=f'skip_layers: "{"x" * 1_000_000}"')
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(("scale_d", "scale_w"), [("1e300", "0.1"), ("1e-30", "1e-30"), ("3e38", "3e38")])
def test_scales_that_float32_does_not_hold_replace_nothing(
    scale_d: str, scale_w: str, work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    fake = work.save("a")
    before = fake.read_bytes()
    record = work.folder / "bad.txt"
    values = f"scale_d: {scale_d} offset_d: 0 scale_w: {scale_w} offset_w: 0"
    record.write_text(f'record {{ key: "conv1" value {{ {values} }} }}', encoding="utf-8")
    caplog.clear()
    with pytest.raises(ValueError, match="positive and finite in float32"):
        amct.convert_model(work.model, str(record), f"{work.folder}/a")
    assert fake.read_bytes() == before
    assert "is replaced" not in caplog.text
