"""Pictures of values: histograms, and boxes by channel."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from roundoff.core.document import json_text
from roundoff.core.files import write_text
from roundoff.errors import BadInput
from roundoff.messages.message import english
from roundoff.pages.text_files import table_csv
from roundoff.report.plots.curves import accumulation_picture, require_matplotlib
from roundoff.report.plots.distributions import channels_picture, distribution_picture
from roundoff.run.budget import UNLIMITED, RunBudget
from roundoff.studies.accumulate.page import curves_table
from roundoff.studies.accumulate.result import Curve, all_but
from roundoff.studies.accumulate.study import AccumulationSettings, accumulate
from roundoff.studies.distribution.page import distribution_table
from roundoff.studies.distribution.result import ChannelSpread, DistributionReport, TensorDistribution
from roundoff.studies.distribution.study import (
    InspectionSettings,
    describe_channels,
    describe_distributions,
)
from roundoff.vendors.facade import WrongType, WrongValue, print_table, progress
from roundoff.vendors.horizon.inputs import (
    CalibratedModel,
    CalibrationNodes,
    NodeLists,
    flat_names,
    is_model,
    node_lists,
    one_metric,
    open_calibrated,
    our_metric,
)
from roundoff.vendors.horizon.sensitivity import (
    DEFAULT_FOLDER,
    framed_table,
    result_folder,
    save_pictures,
    save_tables,
)

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
        raise WrongType(
            "axis is {axis!r}, not a whole number.", fix=english("give the number of an axis, or None"), axis=axis
        )
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
        raise WrongValue(
            english("num_processes is {num_processes!r}.", num_processes=num_processes),
            fix=english("give a number from 1 on"),
        )
    require_matplotlib()
    opened = open_calibrated(model_or_file, calibration_data)
    limits = RunBudget(threads=min(num_processes, os.cpu_count() or 1, _MOST_THREADS))
    report = draw_distributions(opened, names, folder / "data_distribution", limits=limits)
    calibrating = [name for name in names if not opened.nodes.is_ordinary(name)]
    if calibrating:
        draw_channels(opened, calibrating, folder / "channelwise_distribution", limits=limits)
    table = _tensor_table(opened, report)
    print_table(table)
    csv = table_csv(distribution_table(report))
    save_tables(folder, "tensor_analysis", log=table, csv=csv, data=report)


def draw_distributions(
    opened: CalibratedModel, names: Sequence[str], folder: Path, *, limits: RunBudget = UNLIMITED
) -> DistributionReport:
    """Draw a picture for each node, and give what is in them."""
    patterns = _patterns(opened, names)
    settings = InspectionSettings(names=tuple(patterns), limits=limits)
    report = describe_distributions(opened.quantized, opened.data, settings, progress=progress())
    labels = [_label(opened, each) for each in report.distributions]
    shown = [replace(each, name=label) for each, label in zip(report.distributions, labels, strict=True)]
    save_pictures(folder, zip(labels, (partial(distribution_picture, each) for each in shown), strict=True))
    return report


def draw_channels(
    opened: CalibratedModel,
    names: Sequence[str],
    folder: Path,
    *,
    axis: int | None = None,
    limits: RunBudget = UNLIMITED,
) -> None:
    """Draw a picture for each calibration node.

    Raises:
        WrongValue: One is an ordinary node.
    """
    for name in names:
        if opened.nodes.is_ordinary(name) and name not in opened.nodes.by_name:
            what = english("{name!r} is an ordinary node; channels are drawn for calibration nodes.", name=name)
            raise WrongValue(
                what,
                fix=english(
                    "take those that belong to it: {feeding}", feeding=", ".join(opened.nodes.feeding([name]))
                ),
            )
    painters: list[tuple[str, Callable[[], bytes]]] = []
    kinds = {name: opened.nodes.by_name[calibrating].kind for name in names
             for calibrating in opened.nodes.feeding([name])}  # fmt: skip
    for activations in (False, True):
        chosen = [name for name in names if (kinds[name] == "activation") == activations]
        if not chosen:
            continue
        settings = InspectionSettings(
            names=tuple(_patterns(opened, chosen)),
            kinds=("activation",) if activations else ("weight", "bias"),
            axis=1 if activations and axis is None else axis,
            limits=limits,
        )
        try:
            found = describe_channels(opened.quantized, opened.data, settings, progress=progress())
        except BadInput as error:
            raise WrongValue(error.what, fix=error.fix.replace("--axis", "axis")) from error
        for each in found.spreads:
            label = _label(opened, each)
            painters.append((label, partial(channels_picture, replace(each, name=label))))
    save_pictures(folder, painters)


def _patterns(opened: CalibratedModel, names: Sequence[str]) -> list[str]:
    """What our engines call these nodes; a calibration node is named by its quantizer."""
    found = []
    for name in names:
        quantizer = opened.nodes.by_name.get(name)
        if quantizer is None and not opened.nodes.is_ordinary(name):
            # Raises when it means nothing; ordinary nodes without a quantizer can be drawn, too.
            opened.nodes.quantizers([name])
        found.append(name if quantizer is None else f"{quantizer.tensor}_HzCalibration")
    return found


def _label(opened: CalibratedModel, each: TensorDistribution | ChannelSpread) -> str:
    if each.kind == "node":
        return each.name
    return opened.nodes.calibrating(each.tensor, each.name)


def _tensor_table(opened: CalibratedModel, report: DistributionReport) -> str:
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


# Curves of accumulated error.

_WORDS = ("weight", "activation")
_STEM = "accumulate_error"


def plot_acc_error(  # noqa: PLR0913, PLR0917 - the vendor's arguments
    calibrated_data: Any,
    model_or_file: Any,
    quantize_node: Any = None,
    non_quantize_node: Any = None,
    metric: str = "cosine-similarity",
    average_mode: bool = False,
    save_dir: Any = DEFAULT_FOLDER,
) -> None:
    """Draw how error accumulates along the network, for models of which only a part is quantized.

    The fully quantized model is always drawn, too. Beside the picture the curves are stored as CSV and JSON.

    Args:
        calibrated_data: The samples.
        model_or_file: The calibrated model.
        quantize_node: One curve for each entry, with only that quantized; for an entry that is a list with these
            together. ``weight`` and ``activation`` stand for all of them.
        non_quantize_node: The same with everything quantized but these.
        metric: One of cosine-similarity, mse, mre, sqnr, chebyshev.
        average_mode: Whether each value is replaced by the mean of all up to it.
        save_dir: Folder for the picture.

    Raises:
        WrongValue: An argument means nothing here; a ValueError.
        WrongType: An argument is of another kind; a TypeError.
        BadInput: The model or the data cannot be used.
    """
    if is_model(quantize_node):
        what = english(
            "The third argument looks like a model: that is the order of the first generation, save_dir first."
        )
        raise WrongType(what, fix=english("name the arguments, or import roundoff.vendors.horizon.gen1 instead"))
    if not isinstance(average_mode, bool):
        raise WrongType(
            "average_mode is {average_mode!r}.", fix=english("give True or False"), average_mode=average_mode
        )
    folder, name = result_folder(save_dir), one_metric(metric)
    lists = asked_curves(quantize_node, non_quantize_node)
    require_matplotlib()
    opened = open_calibrated(model_or_file, calibrated_data)
    draw_curves(opened, lists, name, average=average_mode, folder=folder)


def asked_curves(quantize_node: Any, non_quantize_node: Any) -> tuple[NodeLists, NodeLists]:
    """What is quantized alone, and what is left out.

    Raises:
        WrongValue: There is neither, or ``weight`` and ``activation`` are to be left out.
        WrongType: An argument holds something else than names.
    """
    only = node_lists("quantize_node", quantize_node)
    leave_out = node_lists("non_quantize_node", non_quantize_node)
    if not only and not leave_out:
        what = english("quantize_node and non_quantize_node are both None: there is nothing to draw.")
        raise WrongValue(what, fix=english("write quantize_node=['weight', 'activation'], or name nodes"))
    for entry in leave_out:
        for word in _WORDS:
            if entry == word or (not isinstance(entry, str) and word in entry):
                other = next(each for each in _WORDS if each != word)
                what = english("non_quantize_node takes names of nodes, not {word!r}.", word=word)
                raise WrongValue(
                    what,
                    fix=english(
                        "write quantize_node=['{other}'] for everything but {word}s", other=other, word=word
                    ),
                )
    return only, leave_out


def draw_curves(
    opened: CalibratedModel, lists: tuple[NodeLists, NodeLists], metric: str, *, average: bool, folder: Any
) -> None:
    """Measure and draw the curves that two lists ask for: those quantized alone, and those left out.

    Args:
        opened: The model and the samples.
        lists: What is quantized alone, and what is left out.
        metric: Horizon's name.
        average: Whether averages are drawn.
        folder: Where the picture goes.
    """
    only, leave_out = lists
    curves = [*_curves(opened.nodes, only, 0)]
    numbered = sum(not isinstance(entry, str) for entry in only)
    curves += [
        Curve(_left_out(curve.name), opened.nodes.without(curve.quantizers))
        for curve in _curves(opened.nodes, leave_out, numbered)
    ]
    settings = AccumulationSettings(metric=our_metric(metric), average=average)
    found = accumulate(opened.quantized, opened.data, curves, settings, progress=progress())
    stem = _STEM if only and leave_out else f"{_STEM}_quantize_node" if only else f"{_STEM}_non_quantize_node"
    save_pictures(folder, [(stem, lambda: accumulation_picture(found))])
    write_text(folder / f"{stem}.csv", table_csv(curves_table(found)))
    write_text(folder / f"{stem}.json", json_text(found))


def _curves(nodes: CalibrationNodes, entries: Sequence[str | list[str]], first: int) -> Iterator[Curve]:
    number = first
    for entry in entries:
        if isinstance(entry, str):
            yield Curve(entry, nodes.quantizers([entry]))
        else:
            yield Curve(f"partial_qmodel_{number}", nodes.quantizers(entry))
            number += 1


def _left_out(name: str) -> str:
    return name if name.startswith("partial_qmodel_") else all_but(name)
