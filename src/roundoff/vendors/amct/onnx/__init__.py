"""The functions of ``amct_onnx``: ``import roundoff.vendors.amct.onnx as amct``.

While this module is imported, onnxruntime sessions that are opened on a model written by `quantize_model` or
`quantize_preprocess` are watched: their runs calibrate. `unwatch` ends that; `calibrate` does without it.
"""

from roundoff.vendors.amct.logging import log_to
from roundoff.vendors.amct.observation import calibrate, unwatch, watch
from roundoff.vendors.amct.onnx.functions import (
    AMCT_SO,
    accuracy_based_auto_calibration,
    convert_model,
    convert_qat_model,
    create_quant_config,
    quantize_model,
    quantize_preprocess,
    save_model,
)

__all__ = [
    "AMCT_SO",
    "accuracy_based_auto_calibration",
    "calibrate",
    "convert_model",
    "convert_qat_model",
    "create_quant_config",
    "log_to",
    "quantize_model",
    "quantize_preprocess",
    "save_model",
    "unwatch",
    "watch",
]

watch()
