"""Curves of accumulated error."""

from collections.abc import Iterator, Sequence
from typing import Any

from roundoff.core.document import json_text
from roundoff.core.files import write_text
from roundoff.pages.csv import table_csv
from roundoff.report.plots.canvas import require_matplotlib
from roundoff.report.plots.curves import accumulation_picture
from roundoff.studies.accumulate.page import curves_table
from roundoff.studies.accumulate.result import Curve
from roundoff.studies.accumulate.study import AccumulationSettings, accumulate
from roundoff.vendors.errors import WrongType, WrongValue
from roundoff.vendors.horizon.arguments import NodeLists, node_lists, one_metric, our_metric
from roundoff.vendors.horizon.calibration_nodes import CalibrationNodes
from roundoff.vendors.horizon.inputs import Opened, is_model, open_calibrated
from roundoff.vendors.horizon.logging import progress
from roundoff.vendors.horizon.tables import DEFAULT_FOLDER, result_folder, save_pictures

__all__ = ["asked_curves", "draw_curves", "plot_acc_error"]

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
        what = "The third argument looks like a model: that is the order of the first generation, save_dir first."
        raise WrongType(what, fix="name the arguments, or import roundoff.vendors.horizon.gen1 instead")
    if not isinstance(average_mode, bool):
        raise WrongType(f"average_mode is {average_mode!r}.", fix="give True or False")
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
        what = "quantize_node and non_quantize_node are both None: there is nothing to draw."
        raise WrongValue(what, fix="write quantize_node=['weight', 'activation'], or name nodes")
    for entry in leave_out:
        for word in _WORDS:
            if entry == word or (not isinstance(entry, str) and word in entry):
                other = next(each for each in _WORDS if each != word)
                what = f"non_quantize_node takes names of nodes, not {word!r}."
                raise WrongValue(what, fix=f"write quantize_node=['{other}'] for everything but {word}s")
    return only, leave_out


def draw_curves(
    opened: Opened, lists: tuple[NodeLists, NodeLists], metric: str, *, average: bool, folder: Any
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
    return name if name.startswith("partial_qmodel_") else f"all but {name}"
