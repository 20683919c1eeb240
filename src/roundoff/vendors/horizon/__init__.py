"""The functions of Horizon's precision debug tool, by their own names.

``import roundoff.vendors.horizon as dbg`` takes the place of ``import horizon_nn.debug as dbg``, of
``import horizon_nn.quantizer.debugger as dbg`` and of ``from hmct.quantizer.debugger import ...``. Arguments have
the order of the newest generation; `roundoff.vendors.horizon.gen1` has that of the first, its defaults and its
tables.
"""

from roundoff.vendors.horizon.inputs import Dataset
from roundoff.vendors.horizon.plots import (
    get_channelwise_data_distribution,
    plot_acc_error,
    plot_distribution,
    tensor_analysis,
)
from roundoff.vendors.horizon.run_all import runall, select_sensitive_samples, sensitivity_analysis
from roundoff.vendors.horizon.sensitivity import get_sensitivity_of_nodes

__all__ = [
    "CalibrationDataSet",
    "Dataset",
    "get_channelwise_data_distribution",
    "get_sensitivity_of_nodes",
    "plot_acc_error",
    "plot_distribution",
    "runall",
    "select_sensitive_samples",
    "sensitivity_analysis",
    "tensor_analysis",
]

CalibrationDataSet = Dataset
"""What the first generation calls it."""
