"""The functions of ``amct_caffe``: ``import roundoff.vendors.amct.caffe as amct``.

No Caffe is needed: `run_model` runs nets, and runs of a modified net calibrate. `opencv_net` opens nets in OpenCV.
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
from roundoff.vendors.amct.caffe.opencv import opencv_net

__all__ = [
    "accuracy_based_auto_calibration",
    "convert_model",
    "create_quant_config",
    "init",
    "opencv_net",
    "quantize_model",
    "run_model",
    "save_model",
    "set_cpu_mode",
    "set_gpu_mode",
]
