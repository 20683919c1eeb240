"""The first generation of Horizon's functions: other positions, all samples by default, full precision."""

from collections.abc import Sequence
from typing import Any

from roundoff.vendors.horizon import plots, sensitivity
from roundoff.vendors.horizon.plots import get_channelwise_data_distribution, plot_distribution
from roundoff.vendors.horizon.run_all import runall

__all__ = [
    "get_channelwise_data_distribution",
    "get_sensitivity_of_nodes",
    "plot_acc_error",
    "plot_distribution",
    "runall",
]


def get_sensitivity_of_nodes(  # noqa: PLR0913, PLR0917 - the vendor's arguments
    model_or_file: Any,
    metrics: str | Sequence[str] = "cosine-similarity",
    calibrated_data: Any = None,
    output_node: str | Sequence[str] | None = None,
    node_type: str = "node",
    data_num: int | None = None,
    verbose: bool = False,
    interested_nodes: Any = None,
) -> dict[str, dict[str, float]]:
    """See `roundoff.vendors.horizon.sensitivity.get_sensitivity_of_nodes`."""
    return sensitivity.get_sensitivity_of_nodes(
        model_or_file,
        metrics,
        calibrated_data,
        output_node,
        node_type,
        data_num,
        verbose,
        interested_nodes,
        generation=1,
    )


def plot_acc_error(  # noqa: PLR0913, PLR0917 - the vendor's arguments
    save_dir: Any,
    calibrated_data: Any,
    model_or_file: Any,
    quantize_node: Any = None,
    non_quantize_node: Any = None,
    metric: str = "cosine-similarity",
    average_mode: bool = False,
) -> None:
    """See `roundoff.vendors.horizon.plots.plot_acc_error`."""
    plots.plot_acc_error(
        calibrated_data, model_or_file, quantize_node, non_quantize_node, metric, average_mode, save_dir
    )
