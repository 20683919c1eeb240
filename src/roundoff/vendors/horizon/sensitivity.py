"""Rankings: what quantizing each node alone does to the outputs."""

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from roundoff.core.document import json_text
from roundoff.core.files import write_bytes, write_text
from roundoff.core.names import FileNames
from roundoff.core.quantizers import SubjectKind, SwitchedSubject
from roundoff.errors import BadInput, nearest
from roundoff.measure.metrics import get_metric
from roundoff.messages.message import english
from roundoff.messages.numbers import counted, first_of
from roundoff.pages.text_files import table_csv
from roundoff.report.plots.curves import require_matplotlib
from roundoff.studies.sensitivity.page import rankings_table
from roundoff.studies.sensitivity.ranking import SensitivitySettings, report_sensitivity
from roundoff.studies.sensitivity.result import SensitivityReport, SensitivityRow
from roundoff.studies.sensitivity.study import whole_sensitivity
from roundoff.vendors.facade import HORIZON_LOGGER, WrongType, WrongValue, log_table, progress
from roundoff.vendors.horizon.inputs import (
    METRICS,
    NODE_TYPES,
    CalibratedModel,
    CalibrationNodes,
    bits_of,
    metric_names,
    node_lists,
    open_calibrated,
    our_metric,
    threshold_of,
)

Generation = Literal[1, 3]
"""1: full precision, titled by the kind. 3, also printed by the second: five decimals."""

_GAP = 2
_LISTED = 5


def framed_table(title: str, heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of text under a title between equals signs.

    Args:
        title: What it shows.
        heading: Name of each column.
        rows: The cells.
    """
    widths = [max(map(len, column)) + _GAP for column in zip(heading, *rows, strict=True)]
    total = sum(widths)
    sign = "=" * max(1, (total - len(title)) // 2)
    lines = [f"{sign}{title}{sign}", _line(heading, widths), "-" * total]
    return "\n".join([*lines, *(_line(row, widths) for row in rows)])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def sensitivity_table(
    node_type: str,
    columns: Sequence[str],
    rows: Sequence[tuple[str, Sequence[float]]],
    *,
    generation: Generation = 3,
    more: Sequence[tuple[str, Sequence[str]]] = (),
) -> str:
    """A ranking.

    Args:
        node_type: What is ranked.
        columns: Metrics.
        rows: Name of each node and its scores.
        generation: Whose form it has.
        more: More columns, each with its heading and a cell for each row.
    """
    if generation == 1:
        title, first, spelled = node_type, "Node", [[repr(float(value)) for value in values] for _, values in rows]
    else:
        title, first = "node sensitivity", node_type
        spelled = [[f"{value:.5f}" for value in values] for _, values in rows]
    cells = [
        (name, *numbers, *(column[place] for _, column in more))
        for place, ((name, _), numbers) in enumerate(zip(rows, spelled, strict=True))
    ]
    return framed_table(title, (first, *columns, *(heading for heading, _ in more)), cells)


# Where results are stored: as Horizon's tools do, and as data beside it.

DEFAULT_FOLDER = "./debug_result/"


def result_folder(save_dir: Any) -> Path:
    """Where results go.

    Raises:
        WrongType: It is not a path.
        WrongValue: Something else than a folder is there.
    """
    if not isinstance(save_dir, str | os.PathLike):
        raise WrongType(
            english("save_dir is {save_dir!r}, not a path.", save_dir=save_dir),
            fix=english("give a folder, as in save_dir='./'"),
        )
    folder = Path(save_dir)
    taken = next((each for each in (folder, *folder.parents) if each.exists() and not each.is_dir()), None)
    if taken is not None:
        raise WrongValue(
            english("save_dir {folder} cannot be made: {taken} is not a folder.", folder=folder, taken=taken),
            fix=english("give another folder"),
        )
    return folder


def save_tables(folder: Path, stem: str, *, log: str, csv: str, data: object) -> None:
    """Write a table as it is printed, as CSV, and as JSON; earlier ones are replaced."""
    write_text(folder / f"{stem}.log", f"{log}\n")
    write_text(folder / f"{stem}.csv", csv)
    write_text(folder / f"{stem}.json", json_text(data))


def save_pictures(folder: Path, painters: Iterable[tuple[str, Callable[[], bytes]]]) -> None:
    """Draw pictures, each into a file named after what it shows; earlier ones are replaced.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    require_matplotlib()
    names = FileNames()
    for name, paint in painters:
        write_bytes(folder / f"{names.stem(name)}.png", paint())


# Ranks that are looked at for ties.
_LOOKED_AT = 10


def get_sensitivity_of_nodes(  # noqa: PLR0913, PLR0917 - the vendor's arguments
    model_or_file: Any,
    metrics: str | Sequence[str] = "cosine-similarity",
    calibrated_data: Any = None,
    output_node: str | Sequence[str] | None = None,
    node_type: str = "node",
    data_num: int | None = 1,
    verbose: bool = False,
    interested_nodes: Sequence[str] | Sequence[Sequence[str]] | None = None,
    save_dir: Any = None,
    *,
    generation: Generation = 3,
) -> dict[str, dict[str, float]]:
    """Rank nodes by what quantizing each of them alone does to the model's outputs.

    Args:
        model_or_file: The calibrated model: a path or a ModelProto, with QuantizeLinear or HzCalibration nodes.
        metrics: One or several of cosine-similarity, mse, mre, sqnr, chebyshev; the first one ranks.
        calibrated_data: Folder with one folder per input, a `Dataset`, or a dictionary of arrays.
        output_node: Compare there instead of at the model's outputs.
        node_type: ``node``, ``weight`` or ``activation``.
        data_num: How many samples, the first ones; all for None.
        verbose: Print the table.
        interested_nodes: Only these, whatever `node_type` says; lists of names are measured together.
        save_dir: Folder for node_sensitivity.log, .csv and .json.
        generation: Form of the table.

    Returns:
        For each node its metrics, the node that hurts most first.

    Raises:
        WrongValue: An argument means nothing here; a ValueError.
        WrongType: An argument is of another kind; a TypeError.
        BadInput: The model or the data cannot be used.
        ModelFailed: The model cannot be run.
    """
    if _is_metrics(calibrated_data) or (calibrated_data is None and not _is_metrics(metrics)):
        # The order of the command line: the data before the metrics.
        metrics, calibrated_data = calibrated_data or "cosine-similarity", metrics
    if node_type not in NODE_TYPES:
        raise WrongValue(
            "There is no node_type {node_type!r}.", fix=nearest(str(node_type), NODE_TYPES), node_type=node_type
        )
    names = metric_names(metrics)
    folder = None if save_dir is None else result_folder(save_dir)
    opened = open_calibrated(model_or_file, calibrated_data).limited(data_num)
    wanted = wanted_subjects(opened.nodes, (node_type,), interested_nodes)
    found = measure_rankings(opened, wanted, names, output_node=output_node)
    ranking = found[0]
    if verbose:
        log_table(ranking.table(generation))
    if folder is not None:
        save_ranking(ranking, folder, "node_sensitivity", generation=generation)
    return ranking.scores


def _is_metrics(given: Any) -> bool:
    if isinstance(given, str):
        return given in METRICS
    return isinstance(given, list | tuple) and bool(given) and all(each in METRICS for each in given)


@dataclass(frozen=True, slots=True, eq=False)
class HorizonRanking:
    """One ranking, in Horizon's names.

    Attributes:
        node_type: What was ranked.
        metrics: Horizon's metric names.
        scores: Node to metric to value, the node that hurts most first.
        report: All that was measured.
        nodes: What names mean.
    """

    node_type: str
    metrics: tuple[str, ...]
    scores: dict[str, dict[str, float]]
    report: SensitivityReport
    nodes: CalibrationNodes

    def table(self, generation: Generation = 3) -> str:
        """The ranking as Horizon's tools print it."""
        more: list[tuple[str, list[str]]] = []
        if self.node_type == "activation" and generation > 1:
            quantizers = [self.nodes.by_name[name] for name in self.scores]
            more = [
                ("threshold", [f"{threshold_of(each):.5f}" for each in quantizers]),
                ("bit", [str(bits_of(each)) for each in quantizers]),
            ]
        rows = [(name, [scores[metric] for metric in self.metrics]) for name, scores in self.scores.items()]
        return sensitivity_table(self.node_type, self.metrics, rows, generation=generation, more=more)

    @property
    def rows(self) -> tuple[SensitivityRow, ...]:
        """What was measured of each node that an output depends on."""
        return next(iter(self.report.rankings.values()), ())


def wanted_subjects(
    nodes: CalibrationNodes, node_types: Sequence[str], interested_nodes: Any
) -> dict[str, tuple[SwitchedSubject, ...]]:
    """What is measured, by the kind of ranking; names that were given take the place of kinds."""
    given = node_lists("interested_nodes", interested_nodes)
    if given:
        found = [_named(nodes, [entry], entry) if isinstance(entry, str) else _named(nodes, entry, str(entry))
                 for entry in given]  # fmt: skip
        return {"node": tuple({subject.name: subject for subject in found}.values())}
    return {kind: _of_kind(nodes, kind) for kind in node_types}


def _named(nodes: CalibrationNodes, members: Sequence[str], name: str) -> SwitchedSubject:
    # All of them are in one ranking, whatever they are.
    return SwitchedSubject(name, "group", nodes.quantizers(members), op_type=nodes.op_type(name))


def _of_kind(nodes: CalibrationNodes, kind: str) -> tuple[SwitchedSubject, ...]:
    subject_kind: SubjectKind = "weight" if kind == "weight" else "activation" if kind == "activation" else "node"
    names = nodes.ordinary if kind == "node" else nodes.of_kind(kind)
    if not names:
        raise WrongValue(
            english("The model has no calibration nodes of the kind {kind!r}.", kind=kind),
            fix=english(
                "choose another node_type; there are: {node_types}",
                node_types=", ".join(each for each in NODE_TYPES if each == "node" or nodes.of_kind(each)),
            ),
        )
    return tuple(
        SwitchedSubject(name, subject_kind, nodes.quantizers([name]), op_type=nodes.op_type(name))
        for name in names
    )


def measure_rankings(
    opened: CalibratedModel,
    wanted: Mapping[str, tuple[SwitchedSubject, ...]],
    metrics: Sequence[str],
    *,
    output_node: Any,
) -> list[HorizonRanking]:
    """Rank all that is wanted, in one run.

    Raises:
        WrongValue: The output node cannot be compared at.
    """
    settings = SensitivitySettings(
        metrics=tuple(map(our_metric, metrics)),
        outputs=_outputs(opened.nodes, output_node),
        subjects=tuple(subject for subjects in wanted.values() for subject in subjects),
        exact=True,
    )
    try:
        found = whole_sensitivity(opened.quantized, opened.data, settings, progress=progress())
    except BadInput as error:
        if output_node is None:
            raise
        raise WrongValue(error.what, fix=error.fix) from error
    report = report_sensitivity(found, opened.quantized)
    return [_ranking(kind, subjects, metrics, report, opened.nodes) for kind, subjects in wanted.items()]


def _outputs(nodes: CalibrationNodes, output_node: Any) -> tuple[str, ...]:
    if output_node is None:
        return ()
    given = (output_node,) if isinstance(output_node, str) else tuple(output_node)
    for name in given:
        if not isinstance(name, str):
            raise WrongType(
                "output_node is {name!r}, not a name.", fix=english("give the name of an ordinary node"), name=name
            )
        if name in nodes.by_name:
            tensor = nodes.by_name[name].tensor
            raise WrongValue(
                "output_node {name!r} is a calibration node; outputs are compared at ordinary nodes.",
                fix=english(
                    "give the node that computes {tensor!r}, or one of: {ordinary}",
                    tensor=tensor,
                    ordinary=first_of(nodes.ordinary, _LISTED),
                ),
                name=name,
            )
    return given


def _ranking(
    node_type: str,
    subjects: Sequence[SwitchedSubject],
    metrics: Sequence[str],
    report: SensitivityReport,
    nodes: CalibrationNodes,
) -> HorizonRanking:
    kind = subjects[0].kind
    rows = report.rankings.get(kind, ())
    scores = {row.name: {metric: row.scores[METRICS[metric]] for metric in metrics} for row in rows}
    # What no output depends on changes nothing.
    perfect = {metric: get_metric(METRICS[metric]).perfect or 0.0 for metric in metrics}
    scores |= {subject.name: dict(perfect) for subject in subjects if subject.name not in scores}
    one = dataclasses.replace(report, rankings={kind: rows}, verdicts=())
    _warn(node_type, rows)
    return HorizonRanking(node_type, tuple(metrics), scores, one, nodes)


def _warn(node_type: str, rows: Sequence[SensitivityRow]) -> None:
    """Say when the order may be chance."""
    if len(rows) < 2:
        return
    if rows[0].samples == 1:
        HORIZON_LOGGER.warning(
            english(
                "{node_type} sensitivity was measured on 1 sample; data_num=None takes all", node_type=node_type
            )
        )
        return
    ties = sum(row.told_apart is False for row in rows[: min(_LOOKED_AT, len(rows) - 1)])
    if ties:
        text = "%s sensitivity: %s of the first %s cannot be told apart from the next on %s"
        HORIZON_LOGGER.warning(
            text, node_type, ties, min(_LOOKED_AT, len(rows)), counted(rows[0].samples, "sample")
        )


def save_ranking(ranking: HorizonRanking, folder: Any, stem: str, *, generation: Generation = 3) -> None:
    """Write a ranking: the printed table, CSV and JSON with everything that was measured."""
    found = {each.name: getattr(ranking.report, each.name) for each in dataclasses.fields(ranking.report)}
    save_tables(
        folder,
        stem,
        log=ranking.table(generation),
        csv=table_csv(rankings_table(ranking.report)),
        data={"node_type": ranking.node_type, "scores": ranking.scores, **found},
    )
