"""Building again on fewer and fewer samples: the smallest calibration set that still gives the fault."""

from collections.abc import Sequence
from dataclasses import dataclass

from roundoff.analysis.bundle.case import FACTOR_DB, Case, CaseSamples, Shown, measure, same_fault
from roundoff.analysis.watching import RunLimits
from roundoff.core.bundle import CaseNumbers
from roundoff.core.progress import Progress
from roundoff.diagnosis.lab import Subset
from roundoff.graph.interface import inputs, outputs
from roundoff.graph.load import Model
from roundoff.runtime.feeds import Samples
from roundoff.vendors.pulsar2.building.quantizing import Outcome, Quantizing
from roundoff.vendors.pulsar2.chips import target_of
from roundoff.vendors.pulsar2.config.schema import BuildConfig
from roundoff.vendors.pulsar2.config.settling import settle
from roundoff.vendors.pulsar2.layers.resolving import refuse_unknown

__all__ = ["Rebuilt", "rebuild"]


@dataclass(frozen=True, slots=True, eq=False)
class Rebuilt:
    """A build on few samples.

    Attributes:
        indices: Which samples it is calibrated on.
        quantizing: What made it.
        outcome: The quantized model.
        numbers: What it shows.
        shown: Whether that is the fault.
    """

    indices: tuple[int, ...]
    quantizing: Quantizing
    outcome: Outcome
    numbers: CaseNumbers
    shown: Shown


def rebuild(  # noqa: PLR0913 - a model, its data, and what both are to show
    model: Model,
    samples: Samples,
    config: BuildConfig,
    *,
    order: Sequence[int],
    first: int,
    fed: CaseSamples,
    wanted: CaseNumbers,
    limits: RunLimits,
    progress: Progress,
) -> Rebuilt:
    """Calibrate on the first samples, then on twice as many, until the model shows the fault, or on all.

    Args:
        model: The float model, as the configuration changes it.
        samples: All calibration samples.
        config: How it is quantized.
        order: In which order they are taken.
        first: How many at first.
        fed: What the model is fed to see the fault.
        wanted: The fault.
        limits: What runs may take.
        progress: Told of runs.

    Raises:
        BadInput: Something asked for cannot be applied.
        ModelFailed: The model cannot be run.
    """
    settle(config, inputs(model), outputs(model))
    count = max(1, min(first, len(order)))
    while True:
        indices = tuple(sorted(order[:count]))
        optimize = not config.onnx_opt.disable_onnx_optimization
        quantizing = Quantizing(model, Subset(samples, indices), target_of(config), optimize=optimize)
        resolved = quantizing.resolve(config.quant.layer_configs)
        refuse_unknown(resolved)
        outcome = quantizing.quantize(config.quant, resolved)
        numbers = measure(Case(outcome.quantized, fed), limits=limits, progress=progress)
        shown = same_fault(wanted, numbers, {}, close_db=FACTOR_DB)
        if shown.same or count == len(order):
            return Rebuilt(indices, quantizing, outcome, numbers, shown)
        count = min(2 * count, len(order))
