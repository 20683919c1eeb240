"""Pictures of values: histograms, and boxes by channel."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from roundoff.errors import BadInput
from roundoff.pages.csv import table_csv
from roundoff.quantize.calibration.watch import UNLIMITED, RunLimits
from roundoff.report.plots.canvas import require_matplotlib
from roundoff.report.plots.channels import channels_picture
from roundoff.report.plots.distribution import distribution_picture
from roundoff.studies.channels.result import ChannelSpread
from roundoff.studies.channels.study import ChannelSettings, describe_channels
from roundoff.studies.distribution.page import distribution_table
from roundoff.studies.distribution.result import Distribution, DistributionReport
from roundoff.studies.distribution.study import DistributionSettings, describe_distributions
from roundoff.vendors.errors import WrongType, WrongValue
from roundoff.vendors.horizon.arguments import flat_names
from roundoff.vendors.horizon.inputs import Opened, open_calibrated
from roundoff.vendors.horizon.logging import progress, tell
from roundoff.vendors.horizon.tables import DEFAULT_FOLDER, framed_table, result_folder, save_pictures, save_tables

__all__ = [
    "draw_channels",
    "draw_distributions",
    "get_channelwise_data_distribution",
    "plot_distribution",
    "tensor_analysis",
]

# More threads than this are not started, whatever is asked for.
_MOST_THREADS = 1024


def plot_distribution(save_dir: Any, model_or_file: Any, calibrated_data: Any, nodes_list: Any) -> None:
    """Draw how values are distributed, a picture for each node.

    Of a weight calibration node the weights in float and quantized, of an activation calibration node its input,
    of an ordinary node its output in float, quantized, and the difference.

    Args:
        save_dir: Folder for the pictures.
        model_or_file: The calibrated model.
        calibrated_data: The samples.
        nodes_list: Names of nodes.

    Raises:
        WrongValue: A name means nothing; a ValueError.
        WrongType: An argument is of another kind; a TypeError.
        BadInput: The model or the data cannot be used.
    """
    folder, names = result_folder(save_dir), flat_names("nodes_list", nodes_list)
    require_matplotlib()
    draw_distributions(open_calibrated(model_or_file, calibrated_data), names, folder)


def get_channelwise_data_distribution(
    save_dir: Any, model_or_file: Any, calibrated_data: Any, nodes_list: Any, axis: int | None = None
) -> None:
    """Draw boxes of the values of each channel, a picture for each calibration node.

    Args:
        save_dir: Folder for the pictures.
        model_or_file: The calibrated model.
        calibrated_data: The samples.
        nodes_list: Names of calibration nodes.
        axis: Where the channels are; by default axis 1 of activations, and of weights the calibration node's.

    Raises:
        WrongValue: A name means nothing, or an ordinary node; a ValueError.
        WrongType: An argument is of another kind; a TypeError.
        BadInput: The model or the data cannot be used.
    """
    folder, names = result_folder(save_dir), flat_names("nodes_list", nodes_list)
    if axis is not None and (isinstance(axis, bool) or not isinstance(axis, int)):
        raise WrongType(f"axis is {axis!r}, not a whole number.", fix="give the number of an axis, or None")
    require_matplotlib()
    draw_channels(open_calibrated(model_or_file, calibrated_data), names, folder, axis=axis)


def tensor_analysis(
    model_or_file: Any,
    calibration_data: Any,
    node_names: Any,
    save_dir: Any = DEFAULT_FOLDER,
    num_processes: int = 16,
) -> None:
    """Describe tensors: a table of their values and quantizers, histograms, and boxes by channel.

    Args:
        model_or_file: The calibrated model.
        calibration_data: The samples.
        node_names: Names of nodes.
        save_dir: Folder for tensor_analysis.log, .csv, .json and the pictures.
        num_processes: Threads to use at most.

    Raises:
        WrongValue: A name means nothing; a ValueError.
        WrongType: An argument is of another kind; a TypeError.
        BadInput: The model or the data cannot be used.
    """
    folder, names = result_folder(save_dir), flat_names("node_names", node_names)
    if isinstance(num_processes, bool) or not isinstance(num_processes, int) or num_processes < 1:
        raise WrongValue(f"num_processes is {num_processes!r}.", fix="give a number from 1 on")
    require_matplotlib()
    opened = open_calibrated(model_or_file, calibration_data)
    limits = RunLimits(threads=_threads(num_processes))
    report = draw_distributions(opened, names, folder / "data_distribution", limits=limits)
    calibrating = [name for name in names if not opened.nodes.is_ordinary(name)]
    if calibrating:
        draw_channels(opened, calibrating, folder / "channelwise_distribution", limits=limits)
    table = _tensor_table(opened, report)
    tell(table)
    save_tables(
        folder,
        "tensor_analysis",
        log=table,
        csv=table_csv(distribution_table(report)),
        data=report,
    )


def _threads(wanted: int) -> int:
    import os

    return min(wanted, os.cpu_count() or 1, _MOST_THREADS)


def draw_distributions(
    opened: Opened, names: Sequence[str], folder: Path, *, limits: RunLimits = UNLIMITED
) -> DistributionReport:
    """Draw a picture for each node, and give what is in them."""
    patterns = _patterns(opened, names)
    settings = DistributionSettings(names=tuple(patterns), limits=limits)
    report = describe_distributions(opened.quantized, opened.data, settings, progress=progress())
    painters: list[tuple[str, Callable[[], bytes]]] = []
    for each in report.distributions:
        label = _label(opened, each)
        shown = dataclasses.replace(each, name=label)
        painters.append((label, partial(distribution_picture, shown)))
    save_pictures(folder, painters)
    return report


def draw_channels(
    opened: Opened,
    names: Sequence[str],
    folder: Path,
    *,
    axis: int | None = None,
    limits: RunLimits = UNLIMITED,
) -> None:
    """Draw a picture for each calibration node.

    Raises:
        WrongValue: One is an ordinary node.
    """
    for name in names:
        if opened.nodes.is_ordinary(name) and name not in opened.nodes.by_name:
            what = f"{name!r} is an ordinary node; channels are drawn for calibration nodes."
            raise WrongValue(what, fix=f"take those that belong to it: {', '.join(opened.nodes.feeding([name]))}")
    painters: list[tuple[str, Callable[[], bytes]]] = []
    kinds = {name: opened.nodes.by_name[calibrating].kind for name in names
             for calibrating in opened.nodes.feeding([name])}  # fmt: skip
    for activations in (False, True):
        chosen = [name for name in names if (kinds[name] == "activation") == activations]
        if not chosen:
            continue
        settings = ChannelSettings(
            names=tuple(_patterns(opened, chosen)),
            kinds=("activation",) if activations else ("weight", "bias"),
            axis=1 if activations and axis is None else axis,
            limits=limits,
        )
        for each in _spreads(opened, settings):
            label = _label(opened, each)
            painters.append((label, partial(channels_picture, dataclasses.replace(each, name=label))))
    save_pictures(folder, painters)


def _spreads(opened: Opened, settings: ChannelSettings) -> tuple[ChannelSpread, ...]:
    try:
        return describe_channels(opened.quantized, opened.data, settings, progress=progress()).spreads
    except BadInput as error:
        if "no axis" in error.what:
            raise WrongValue(error.what, fix=error.fix.replace("--axis", "axis")) from error
        raise


def _patterns(opened: Opened, names: Sequence[str]) -> list[str]:
    """What our engines call these nodes; a calibration node is named by its quantizer."""
    found = []
    for name in names:
        # Raises when it means nothing; ordinary nodes without a quantizer can be drawn, too.
        if name in opened.nodes.by_name:
            quantizer = opened.nodes.by_name[name]
            found.append(f"{quantizer.tensor}_HzCalibration")
        elif opened.nodes.is_ordinary(name):
            found.append(name)
        else:
            opened.nodes.quantizers([name])
            found.append(name)
    return found


def _label(opened: Opened, each: Distribution | ChannelSpread) -> str:
    if each.kind == "node":
        return each.name
    return opened.nodes.calibrating(each.tensor, each.name)


def _tensor_table(opened: Opened, report: DistributionReport) -> str:
    heading = ("tensor", "min", "max", "mean", "std", "low", "high", "bit", "clipped", "levels", "sqnr")
    rows = []
    for each in report.distributions:
        values, facts = each.before, each.quantizer
        numbers = [_number(value) for value in (values.minimum, values.maximum, values.mean, values.std)]
        if facts is None:
            quantized = ["--"] * 6
        else:
            quantized = [_number(facts.low), _number(facts.high), str(facts.bits), f"{100 * facts.clipped:.4f}%"]
            quantized += [f"{facts.levels_used}/{facts.levels}", _number(facts.sqnr_db)]
        rows.append((_label(opened, each), *numbers, *quantized))
    return framed_table("tensor analysis", heading, rows)


def _number(value: float | None) -> str:
    return "--" if value is None else f"{value:.5f}"
