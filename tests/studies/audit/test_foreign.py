"""Audits of files that other tools wrote, sound and not."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnxruntime.quantization import QuantFormat, QuantType

from roundoff.graph.load import load_model
from roundoff.graph.readers.reader import read_quantized
from roundoff.studies.audit.result import Audit
from roundoff.studies.audit.study import audit_model
from tests.graph.quantized_nets import mixed_net
from tests.graph.readers.tools import Net, attention, quantized_by_onnxruntime
from tests.models import conv_net, save
from tests.real_models import real_models

OPTIONS: dict[str, Any] = {
    "activation_type": QuantType.QUInt8,
    "weight_type": QuantType.QInt8,
    "per_channel": True,
}


def nets() -> dict[str, Net]:
    return {
        "conv": (conv_net(), {"image": (1, 3, 8, 8)}),
        "mixed": (mixed_net(), {"image": (1, 3, 4, 4)}),
        "attention": attention(),
    }


def audited(path: Path) -> Audit:
    return audit_model(read_quantized(load_model(path)), subject=path.name)


def silent(audit: Audit) -> dict[str, list[str]]:
    found = {row.node: [each.kind for each in row.findings if each.severity == "silent"] for row in audit.rows}
    return {node: kinds for node, kinds in found.items() if kinds}


@pytest.mark.parametrize("form", list(QuantFormat))
@pytest.mark.parametrize("name", list(nets()))
def test_sound_models_are_not_accused(tmp_path: Path, name: str, form: QuantFormat) -> None:
    quantized_by_onnxruntime(nets()[name], tmp_path, quant_format=form, **OPTIONS)
    audit = audited(tmp_path / "quantized.onnx")
    assert (silent(audit), audit.findings) == ({}, ())


def test_a_layer_left_out(tmp_path: Path) -> None:
    quantized_by_onnxruntime(nets()["mixed"], tmp_path, nodes_to_exclude=["depthwise"], **OPTIONS)
    audit = audited(tmp_path / "quantized.onnx")
    assert silent(audit) == {"depthwise": ["partial_inputs"]}
    (row,) = [row for row in audit.rows if row.node == "depthwise"]
    assert row.findings[0].text == "input 1 (w2) in float while its other inputs are quantized"


def test_a_scale_changed_on_one_side_of_a_pair(tmp_path: Path) -> None:
    quantized_by_onnxruntime(nets()["conv"], tmp_path, **OPTIONS)
    proto = onnx.load(tmp_path / "quantized.onnx")
    pair = next(each for each in proto.graph.node if each.name == "relu1_DequantizeLinear")
    scale = next(each for each in proto.graph.initializer if each.name == pair.input[1])
    proto.graph.initializer.append(numpy_helper.from_array(numpy_helper.to_array(scale) * np.float32(2), "other"))
    pair.input[1] = "other"
    audit = audited(save(proto, tmp_path / "changed.onnx"))
    assert silent(audit) == {"Conv1_Relu": ["disagreement"]}


@pytest.mark.parametrize(
    "path", [each for each in real_models() if each.id in ("none", "mobilenet_v2_qnnpack_qdq")]
)
def test_the_third_party_model_is_sound(path: Path) -> None:
    audit = audited(path)
    assert audit.passed
    assert len(audit.rows) == 100
    assert {row.effective.weight for row in audit.rows if row.op_type == "Conv"} == {"s8"}
    assert {part.axis for row in audit.rows for part in row.parts} == {None}
