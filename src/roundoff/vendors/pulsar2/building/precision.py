"""The precision analysis: rows of the table, and what is remarkable about them."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from roundoff.core.plan import FLOAT
from roundoff.core.progress import SILENT, Progress
from roundoff.core.target import Arithmetic
from roundoff.run.capture import Samples
from roundoff.studies.layers.measurement import FUSED
from roundoff.studies.layers.result import LayerReport, LayerRow, Method
from roundoff.studies.layers.study import LayerSettings, analyze_layers
from roundoff.vendors.pulsar2.building.recipe import Outcome
from roundoff.vendors.pulsar2.config.schema import PrecisionAnalysisMethod, PrecisionAnalysisMode
from roundoff.vendors.pulsar2.layer_configs import Frontend
from roundoff.vendors.pulsar2.operators import quantized_type, vendor_dtype
from roundoff.vendors.pulsar2.tables import PrecisionRow

__all__ = ["Analysis", "PrecisionFinding", "PrecisionSettings", "analyze_precision"]

_VARIANTS: dict[PrecisionAnalysisMethod, Method] = {
    PrecisionAnalysisMethod.PerLayer: "local",
    PrecisionAnalysisMethod.EndToEnd: "accumulated",
}


@dataclass(frozen=True, slots=True)
class PrecisionFinding:
    """A tensor of which the two modes disagree by more than rounding.

    Attributes:
        operator: The layer that writes it.
        tensor: The tensor.
        share: Share of its codes that differ by more than one step.
    """

    operator: str
    tensor: str
    share: float


@dataclass(frozen=True, slots=True)
class Analysis:
    """What a precision analysis found.

    Attributes:
        method: PerLayer or EndToEnd.
        mode: Reference or NPUBackend.
        rows: One for each tensor that a layer writes, in execution order.
        nodes: The node behind each row, by its name in the graph.
        outputs: The tensors that leave the network.
        samples: Names of the samples.
        findings: Where the two modes disagree; only with NPUBackend.
        overflows: Where sums or biases did not fit; only with NPUBackend.
        in_float: Nodes that ran in float although NPUBackend was asked for, each with the reason.
    """

    method: PrecisionAnalysisMethod
    mode: PrecisionAnalysisMode
    rows: tuple[PrecisionRow, ...]
    nodes: tuple[str, ...]
    outputs: frozenset[str]
    samples: tuple[str, ...]
    findings: tuple[PrecisionFinding, ...] = ()
    overflows: tuple[str, ...] = ()
    in_float: tuple[str, ...] = ()

    @property
    def output_cosine(self) -> float | None:
        """The cosine of the worst output; None where no output has one."""
        found = [row.cosine for row in self.rows if row.tensor in self.outputs and row.cosine is not None]
        return min(found, default=None)


@dataclass(frozen=True, slots=True)
class PrecisionSettings:
    """How precision is measured.

    Attributes:
        method: Each layer fed with the float model's tensors, or the quantized model running through.
        mode: Fake quantization, or exact integers.
        arithmetic: How the chip computes.
        max_memory: Bytes the process may take; most of the free memory by default.
    """

    method: PrecisionAnalysisMethod
    mode: PrecisionAnalysisMode
    arithmetic: Arithmetic
    max_memory: int | None = None


def analyze_precision(
    outcome: Outcome,
    samples: Samples,
    frontend: Frontend,
    *,
    settings: PrecisionSettings,
    progress: Progress = SILENT,
) -> Analysis:
    """Measure every layer as the vendor does.

    Args:
        outcome: The quantized model.
        samples: What it is fed.
        frontend: The graph, with the user's names.
        settings: How to measure.
        progress: Told of every sample.

    Raises:
        BadInput: The samples do not fit the model.
        ModelFailed: The model cannot be run.
    """
    integers = settings.mode is PrecisionAnalysisMode.NPUBackend
    variant = _VARIANTS[settings.method]

    def measured(wanted: Method) -> LayerReport:
        how = LayerSettings(
            wanted,
            "integer" if integers else "reference",
            settings.arithmetic,
            max_memory=settings.max_memory,
        )
        return analyze_layers(outcome.quantized, samples, how, progress=progress)

    report = measured(variant)
    # Both modes are compared at layers fed alike; run through, a step here is many steps later.
    compared = report if variant == "local" or not integers else measured("local")
    rows = list(_rows(report, frontend, outcome.resolved.float_nodes, variant))
    leaving = frozenset(row.tensor for row in report.rows if row.output)
    return Analysis(
        method=settings.method,
        mode=settings.mode,
        rows=tuple(row for _, row in rows),
        nodes=tuple(each.node for each, _ in rows),
        outputs=leaving,
        samples=report.samples,
        findings=tuple(_findings(compared.rows, frontend)) if integers else (),
        overflows=tuple(f"{each.node}: {each.text}" for each in report.overflows),
        in_float=tuple(f"{node}: {why}" for node, why in report.float_nodes.items()),
    )


def _rows(
    report: LayerReport, frontend: Frontend, float_nodes: Collection[str], variant: Method
) -> Iterator[tuple[LayerRow, PrecisionRow]]:
    for row in report.rows:
        score = row.local if variant == "local" else row.accumulated
        unit = frontend.unit_of.get(row.node)
        if score is None or unit is None or row.quantized == FUSED or row.tensor in unit.inner:
            continue
        if not any(frontend.view.computes_values(node) for node in unit.nodes):
            continue
        kind = quantized_type(
            frontend.type_of(unit), moves=frontend.moves(unit), in_float=unit.first.name in float_nodes
        )
        operator, dtype = frontend.names.original(unit.first.name), vendor_dtype(row.dtype)
        qdtype = dtype if row.quantized == FLOAT else vendor_dtype(row.quantized)
        if row.output and row.quantized != FLOAT:
            operator, kind, qdtype = f"{row.tensor}_DequantizeLinear", "AxDequantizeLinear", dtype
        yield row, PrecisionRow(operator, kind, row.tensor, row.shape, dtype, qdtype, score.cosine, score.mse)


def _findings(rows: Sequence[LayerRow], frontend: Frontend) -> Iterator[PrecisionFinding]:
    for row in rows:
        if row.distant_codes:
            operator = frontend.names.original(frontend.unit_of[row.node].first.name)
            yield PrecisionFinding(operator, row.tensor, row.distant_codes)
