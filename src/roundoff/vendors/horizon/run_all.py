"""All analyses at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roundoff.core.quantizers import SwitchedSubject
from roundoff.errors import nearest
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.measure.metrics import get_metric
from roundoff.messages.message import english
from roundoff.messages.numbers import csv_text
from roundoff.report.plots.curves import require_matplotlib
from roundoff.studies.partial.result import Raise
from roundoff.studies.partial.study import Changes
from roundoff.studies.samples.study import WorstSampleSettings, find_worst_samples
from roundoff.studies.sensitivity.ranking import SensitivitySettings
from roundoff.studies.sensitivity.result import SubjectScore
from roundoff.studies.sensitivity.study import whole_sensitivity
from roundoff.vendors.facade import HORIZON_LOGGER, WrongType, WrongValue, log_table, print_table, progress
from roundoff.vendors.horizon.inputs import (
    METRICS,
    NODE_TYPES,
    CalibratedModel,
    Dataset,
    check_threshold,
    flat_names,
    metric_names,
    node_lists,
    one_metric,
    open_calibrated,
)
from roundoff.vendors.horizon.plots import asked_curves, draw_channels, draw_curves, draw_distributions
from roundoff.vendors.horizon.sensitivity import (
    DEFAULT_FOLDER,
    HorizonRanking,
    framed_table,
    measure_rankings,
    result_folder,
    save_ranking,
    save_tables,
    wanted_subjects,
)

# What happens when the worst nodes get another type, and which samples are hurt most.

BASE_LINE = "calibrated_model"
"""Key of the score with nothing switched."""

_QTYPES: dict[str, Raise] = {"float32": "float", "float16": "float", "int16": "s16"}


@dataclass(frozen=True, slots=True)
class SwitchedModel:
    """Scores with more and more nodes switched, by the name of the last one.

    Attributes:
        means: Over all outputs.
        by_output: Of each output.
        table: As it is printed.
    """

    means: dict[str, float]
    by_output: dict[str, dict[str, float]]
    table: str


def sensitivity_analysis(  # noqa: PLR0913, PLR0917 - the vendor's arguments
    model_or_file: Any,
    calibrated_data: Any,
    metric: str = "cosine-similarity",
    pick_threshold: float = 0.999,
    data_num: int | None = 1,
    sensitive_nodes: Sequence[str] | None = None,
    qtype: str = "float32",
    output_separated: bool = False,
    save_dir: Any = DEFAULT_FOLDER,
) -> Mapping[str, dict[str, float] | float]:
    """Measure the outputs with more and more of the sensitive nodes in another type.

    Args:
        model_or_file: The calibrated model.
        calibrated_data: The samples.
        metric: One of cosine-similarity, mse, mre, sqnr, chebyshev.
        pick_threshold: Nodes whose sensitivity is at or below this are sensitive; for mse, mre and chebyshev those
            at or above.
        data_num: How many samples; all for None.
        sensitive_nodes: These, in this order, instead of ranking them first.
        qtype: What they become: float32, int16, or float16, which is measured as float32.
        output_separated: Whether each score is a dictionary by output.
        save_dir: Folder for sensitivity_analysis.log, .csv and .json.

    Returns:
        Under ``calibrated_model`` the score with nothing switched; under each node that with it and all before it
        switched.

    Raises:
        WrongValue: An argument means nothing here; a ValueError.
        WrongType: An argument is of another kind; a TypeError.
        BadInput: The model or the data cannot be used.
    """
    folder, name = result_folder(save_dir), one_metric(metric)
    if qtype not in _QTYPES:
        raise WrongValue(
            english("There is no qtype {qtype!r} to switch to.", qtype=qtype), fix=nearest(str(qtype), _QTYPES)
        )
    check_threshold(pick_threshold)
    given = flat_names("sensitive_nodes", sensitive_nodes, required=False)
    opened = open_calibrated(model_or_file, calibrated_data).limited(data_num)
    chosen = given or _picked(opened, name, pick_threshold)
    found = analyze_switching(opened, chosen, name, qtype=qtype, folder=folder)
    print_table(found.table)
    return found.by_output if output_separated else found.means


def _picked(opened: CalibratedModel, metric: str, threshold: float) -> list[str]:
    wanted = wanted_subjects(opened.nodes, ("node",), None)
    ranking = measure_rankings(opened, wanted, (metric,), output_node=None)[0]
    return pick(ranking.scores, metric, threshold)


def pick(scores: Mapping[str, Mapping[str, float]], metric: str, threshold: float) -> list[str]:
    """The nodes of a ranking that count as sensitive."""
    higher = get_metric(METRICS[metric]).direction == "higher"
    return [
        name
        for name, values in scores.items()
        if (values[metric] <= threshold if higher else values[metric] >= threshold)
    ]


def analyze_switching(
    opened: CalibratedModel,
    names: Sequence[str],
    metric: str,
    *,
    qtype: str = "float32",
    folder: Any,
) -> SwitchedModel:
    """Measure and store the scores with the first 0, 1, 2, ... of these nodes switched."""
    if qtype == "float16":
        HORIZON_LOGGER.warning(english("float16 is measured as float32: its own rounding is not simulated"))
    if not names:
        HORIZON_LOGGER.warning(
            english("no node is sensitive enough to be switched; raise pick_threshold, or give sensitive_nodes")
        )
    # A model without any switched node comes first.
    prefixes = [opened.nodes.quantizers(names[:count]) for count in range(len(names) + 1)]
    found = _scores(opened.quantized, opened.data, prefixes, METRICS[metric], _QTYPES[qtype])
    keys = (BASE_LINE, *names)
    by_output = {
        key: dict(zip(outputs, score.per_output[METRICS[metric]], strict=True))
        for key, (score, outputs) in zip(keys, found, strict=True)
    }
    means = {key: score.mean[METRICS[metric]] for key, (score, _) in zip(keys, found, strict=True)}
    return SwitchedModel(means, by_output, _save(folder, metric, qtype, means, by_output))


def _scores(
    quantized: QuantizedModel, data: Dataset, prefixes: Sequence[tuple[str, ...]], metric: str, to: Raise
) -> list[tuple[SubjectScore, tuple[str, ...]]]:
    """For each prefix its scores and the outputs they are of; every network is run whole, against float."""
    changes = Changes(quantized.quantizers, to)
    found = []
    for names in prefixes:
        on = changes.with_changed(names)
        everything = SwitchedSubject("everything", "group", tuple(each.name for each in on))
        if not on:
            # Nothing is quantized any more: any quantizer left out of all of them says the same.
            every = tuple(each.name for each in quantized.quantizers)
            settings = SensitivitySettings(
                metrics=(metric,), subjects=(SwitchedSubject("all", "group", every),), mode="left_out", exact=True
            )
            result = whole_sensitivity(quantized, data, settings, progress=progress())
        else:
            settings = SensitivitySettings(metrics=(metric,), subjects=(everything,), exact=True)
            model = QuantizedModel(quantized.float_model, on)
            result = whole_sensitivity(model, data, settings, progress=progress())
        found.append((result.rankings["group"][0].score, result.outputs))
    return found


def _save(
    folder: Any, metric: str, qtype: str, means: Mapping[str, float], by_output: Mapping[str, Mapping[str, float]]
) -> str:
    """Write the scores, and give the table."""
    outputs = list(next(iter(by_output.values())))
    rows = [
        (str(count), name, *(f"{value:.5f}" for value in (means[name], *by_output[name].values())))
        for count, name in enumerate(means)
    ]
    log = framed_table(f"sensitivity analysis to {qtype}", ("number", "node", metric, *outputs), rows)
    scores = ((count, name, means[name], *by_output[name].values()) for count, name in enumerate(means))
    table = csv_text(("number", "node", metric, *outputs), scores)
    data = {"metric": metric, "qtype": qtype, "scores": dict(means), "per_output": by_output}
    save_tables(folder, "sensitivity_analysis", log=log, csv=table, data=data)
    return log


def select_sensitive_samples(
    calibrated_model: Any, calibration_data: Any, metric: str = "cosine-similarity", num_sample: int = 1
) -> Dataset:
    """The samples that quantization hurts most, the worst first.

    Args:
        calibrated_model: The calibrated model.
        calibration_data: The samples.
        metric: One of cosine-similarity, mse, mre, sqnr, chebyshev.
        num_sample: How many.

    Returns:
        A dataset that every function takes as calibrated_data.

    Raises:
        WrongValue: An argument means nothing here; a ValueError.
        WrongType: An argument is of another kind; a TypeError.
        BadInput: The model or the data cannot be used.
    """
    name = one_metric(metric)
    opened = open_calibrated(calibrated_model, calibration_data)
    if isinstance(num_sample, bool) or not isinstance(num_sample, int):
        raise WrongType(
            english("num_sample is {num_sample!r}, not a whole number.", num_sample=num_sample),
            fix=english("give a number from 1 on"),
        )
    if not 1 <= num_sample <= len(opened.data):
        what = english(
            "num_sample is {num_sample}, but there are {count} samples.",
            num_sample=num_sample,
            count=len(opened.data),
        )
        raise WrongValue(what, fix=english("give 1 to {count}", count=len(opened.data)))
    settings = WorstSampleSettings(metrics=(METRICS[name],))
    found = find_worst_samples(opened.quantized, opened.data, settings, progress=progress())
    return opened.data.chosen([each.index for each in found.samples[:num_sample]])


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
        what = english("There is no node_type {node_type!r}.", node_type=node_type)
        raise WrongValue(
            what,
            fix=english(
                "choose one of: {node_types}, or None for weights and activations",
                node_types=", ".join(NODE_TYPES),
            ),
        )
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
            log_table(ranking.table())
    worst = _worst(opened, rankings)
    draw_distributions(opened, drawn or worst, folder / "data_distribution")
    draw_channels(opened, boxed or worst, folder / "channelwise_distribution", axis=axis)
    draw_curves(opened, lists, metric, average=average_mode, folder=folder / "accumulate_error")
    chosen = switched or pick(_node_scores(few, rankings, metrics), metrics[0], pick_threshold)
    switching = analyze_switching(few, chosen, metrics[0], folder=folder / "sensitivity_analysis")
    if verbose:
        log_table(switching.table)


def _kinds(opened: CalibratedModel, node_type: str | None) -> tuple[str, ...]:
    if node_type is not None:
        return (node_type,)
    return tuple(kind for kind in ("weight", "activation") if opened.nodes.of_kind(kind))


def _worst(opened: CalibratedModel, rankings: Sequence[HorizonRanking]) -> list[str]:
    """The calibration nodes of the first five of each ranking."""
    found: dict[str, None] = {}
    for ranking in rankings:
        names = [name for row in list(ranking.scores)[:_DRAWN] for name in _members(row, ranking)]
        found |= dict.fromkeys(opened.nodes.feeding(names))
    return list(found)


def _members(name: str, ranking: HorizonRanking) -> list[str]:
    """The calibration nodes of a group, or the node itself."""
    if name in ranking.nodes.by_name or ranking.nodes.is_ordinary(name):
        return [name]
    row = next((each for each in ranking.rows if each.name == name), None)
    return [] if row is None else [ranking.nodes.name_of(each) for each in row.quantizers]


def _node_scores(
    opened: CalibratedModel, rankings: Sequence[HorizonRanking], metrics: Sequence[str]
) -> dict[str, dict[str, float]]:
    """The ranking of ordinary nodes, which there may be already."""
    known = next((each for each in rankings if each.node_type == "node"), None)
    if known is not None:
        return {name: scores for name, scores in known.scores.items() if not name.startswith("[")}
    wanted = wanted_subjects(opened.nodes, ("node",), None)
    return measure_rankings(opened, wanted, metrics[:1], output_node=None)[0].scores
