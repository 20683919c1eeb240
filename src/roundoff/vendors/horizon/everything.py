"""All analyses at once."""

from collections.abc import Sequence
from typing import Any

from roundoff.plots.canvas import require_matplotlib
from roundoff.vendors.horizon.arguments import (
    NODE_TYPES,
    check_threshold,
    flat_names,
    metric_names,
    node_lists,
    one_metric,
)
from roundoff.vendors.horizon.curves import asked_curves, draw_curves
from roundoff.vendors.horizon.errors import WrongValue
from roundoff.vendors.horizon.files import DEFAULT_FOLDER, result_folder
from roundoff.vendors.horizon.listening import say
from roundoff.vendors.horizon.opening import Opened, open_calibrated
from roundoff.vendors.horizon.pictures import draw_channels, draw_distributions
from roundoff.vendors.horizon.ranking import Ranking, measure_rankings, save_ranking, wanted_subjects
from roundoff.vendors.horizon.switching import analyze_switching, pick

__all__ = ["runall"]

_DRAWN = 5
"""Of each ranking so many are drawn."""


def runall(  # noqa: PLR0913, PLR0917 - the vendor's arguments
    model_or_file: Any,
    calibrated_data: Any,
    save_dir: Any = DEFAULT_FOLDER,
    ns_metrics: str | Sequence[str] = "cosine-similarity",
    output_node: str | Sequence[str] | None = None,
    node_type: str | None = None,
    data_num: int | None = 1,
    verbose: bool = False,
    interested_nodes: Any = None,
    dis_nodes_list: Any = None,
    cw_nodes_list: Any = None,
    axis: int | None = None,
    quantize_node: Any = None,
    non_quantize_node: Any = None,
    ae_metric: str = "cosine-similarity",
    average_mode: bool = False,
    pick_threshold: float = 0.999,
    sensitive_nodes: Sequence[str] | None = None,
) -> None:
    """Rank weights and activations, draw the worst five of each, the curves of both, and switch sensitive nodes.

    Args:
        model_or_file: The calibrated model.
        calibrated_data: The samples.
        save_dir: Folder for node_sensitivity/, data_distribution/, channelwise_distribution/, accumulate_error/
            and sensitivity_analysis/.
        ns_metrics: Metrics of the rankings; the first one ranks.
        output_node: Compare there instead of at the model's outputs.
        node_type: Only this ranking; weights and activations by default.
        data_num: How many samples are ranked on; all for None.
        verbose: Print the rankings.
        interested_nodes: Rank only these.
        dis_nodes_list: Draw histograms of these instead of the worst.
        cw_nodes_list: Draw channels of these calibration nodes instead of the worst.
        axis: Where the channels are.
        quantize_node: Curves with only these quantized; weight and activation by default.
        non_quantize_node: Curves with everything but these quantized.
        ae_metric: Metric of the curves.
        average_mode: Whether curves show averages.
        pick_threshold: Nodes at or below this are switched to float.
        sensitive_nodes: These are switched instead.

    Raises:
        WrongValue: An argument means nothing here; a ValueError.
        WrongType: An argument is of another kind; a TypeError.
        BadInput: The model or the data cannot be used.
    """
    if node_type is not None and node_type not in NODE_TYPES:
        what = f"There is no node_type {node_type!r}."
        raise WrongValue(what, fix=f"choose one of: {', '.join(NODE_TYPES)}, or None for weights and activations")
    folder, metrics, metric = result_folder(save_dir), metric_names(ns_metrics), one_metric(ae_metric)
    check_threshold(pick_threshold)
    drawn = flat_names("dis_nodes_list", dis_nodes_list, required=False)
    boxed = flat_names("cw_nodes_list", cw_nodes_list, required=False)
    switched = flat_names("sensitive_nodes", sensitive_nodes, required=False)
    nothing = not node_lists("quantize_node", quantize_node) and not node_lists("", non_quantize_node)
    lists = asked_curves(["weight", "activation"] if nothing else quantize_node, non_quantize_node)
    # What is missing should not be told after minutes of work.
    require_matplotlib()
    opened = open_calibrated(model_or_file, calibrated_data)
    few = opened.limited(data_num)
    kinds = _kinds(opened, node_type)
    wanted = wanted_subjects(opened.nodes, kinds, interested_nodes)
    rankings = measure_rankings(few, wanted, metrics, output_node=output_node)
    for ranking in rankings:
        save_ranking(ranking, folder / "node_sensitivity", f"sensitivity_of_{ranking.node_type}")
        if verbose:
            say(ranking.table())
    worst = _worst(opened, rankings)
    draw_distributions(opened, drawn or worst, folder / "data_distribution")
    draw_channels(opened, boxed or worst, folder / "channelwise_distribution", axis=axis)
    draw_curves(opened, lists, metric, average=average_mode, folder=folder / "accumulate_error")
    chosen = switched or pick(_node_scores(few, rankings, metrics), metrics[0], pick_threshold)
    switching = analyze_switching(few, chosen, metrics[0], folder=folder / "sensitivity_analysis")
    if verbose:
        say(switching.table)


def _kinds(opened: Opened, node_type: str | None) -> tuple[str, ...]:
    if node_type is not None:
        return (node_type,)
    return tuple(kind for kind in ("weight", "activation") if opened.nodes.of_kind(kind))


def _worst(opened: Opened, rankings: Sequence[Ranking]) -> list[str]:
    """The calibration nodes of the first five of each ranking."""
    found: dict[str, None] = {}
    for ranking in rankings:
        names = [name for row in list(ranking.scores)[:_DRAWN] for name in _members(row, ranking)]
        found |= dict.fromkeys(opened.nodes.feeding(names))
    return list(found)


def _members(name: str, ranking: Ranking) -> list[str]:
    """The calibration nodes of a group, or the node itself."""
    if name in ranking.nodes.by_name or ranking.nodes.is_ordinary(name):
        return [name]
    row = next((each for each in ranking.rows if each.name == name), None)
    return [] if row is None else [ranking.nodes.name_of(each) for each in row.quantizers]


def _node_scores(
    opened: Opened, rankings: Sequence[Ranking], metrics: Sequence[str]
) -> dict[str, dict[str, float]]:
    """The ranking of ordinary nodes, which there may be already."""
    known = next((each for each in rankings if each.node_type == "node"), None)
    if known is not None:
        return {name: scores for name, scores in known.scores.items() if not name.startswith("[")}
    wanted = wanted_subjects(opened.nodes, ("node",), None)
    return measure_rankings(opened, wanted, metrics[:1], output_node=None)[0].scores
