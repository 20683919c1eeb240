"""The functions of ``amct_caffe``: ``import roundoff.vendors.amct.caffe as amct``.

They need a flavour ``caffe`` (see `roundoff.vendors.amct.flavour`) that reads and writes Caffe's files. Without
one, each of them says so.
"""

from roundoff.vendors.amct.caffe.functions import (
    accuracy_based_auto_calibration,
    convert_model,
    create_quant_config,
    init,
    quantize_model,
    run_model,
    save_model,
    set_cpu_mode,
    set_gpu_mode,
)

__all__ = [
    "accuracy_based_auto_calibration",
    "convert_model",
    "create_quant_config",
    "init",
    "quantize_model",
    "run_model",
    "save_model",
    "set_cpu_mode",
    "set_gpu_mode",
]
