"""Names, order and defaults of parameters are the vendor's."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import roundoff.vendors.amct.caffe as amct_caffe
import roundoff.vendors.amct.onnx as amct_onnx

SEARCH = {"strategy": "BinarySearch", "sensitivity": "CosineSimilarity"}
CREATE = {"skip_layers": None, "batch_num": 1, "activation_offset": True, "config_defination": None}


@pytest.mark.parametrize(
    ("function", "needed", "defaults"),
    [
        (amct_onnx.create_quant_config, "config_file model_file", {**CREATE, "updated_model": None}),
        (amct_onnx.quantize_preprocess, "config_file record_file model_file modified_onnx_file", {}),
        (amct_onnx.quantize_model, "config_file model_file modified_onnx_file record_file", {}),
        (amct_onnx.save_model, "modified_onnx_file record_file save_path", {}),
        (amct_onnx.convert_qat_model, "model_file save_path", {"record_file": None}),
        (
            amct_onnx.accuracy_based_auto_calibration,
            "model_file model_evaluator config_file record_file save_dir",
            SEARCH,
        ),
        (amct_caffe.create_quant_config, "config_file model_file weights_file", CREATE),
        (amct_caffe.init, "config_file model_file weights_file scale_offset_record_file", {}),
        (amct_caffe.quantize_model, "graph modified_model_file modified_weights_file", {}),
        (amct_caffe.save_model, "graph save_type save_path", {}),
        (amct_caffe.convert_model, "model_file weights_file scale_offset_record_file save_path", {}),
        (
            amct_caffe.accuracy_based_auto_calibration,
            "model_file weights_file model_evaluator config_file record_file save_dir",
            SEARCH,
        ),
    ],
)
def test_parameters(function: Callable[..., Any], needed: str, defaults: dict[str, Any]) -> None:
    parameters = inspect.signature(function).parameters.values()
    ordered = [each for each in parameters if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    assert [each.name for each in ordered] == [*needed.split(), *defaults]
    given = {each.name: each.default for each in ordered if each.default is not inspect.Parameter.empty}
    assert given == defaults
    # What is ours can only be given by name, and need not be given.
    ours = [each for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]
    assert all(each.default is not inspect.Parameter.empty for each in ours)
