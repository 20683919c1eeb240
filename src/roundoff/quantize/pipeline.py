"""The whole way from a float model and samples to a quantized one: prepare, plan, calibrate, decide, check."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from roundoff.core.plan import QuantPlan, Rule
from roundoff.core.progress import SILENT, Progress
from roundoff.core.quantizers import QuantParams, QuantSpec
from roundoff.core.target import Target
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.insertion import deploy_model, fake_quant_model, switch_on
from roundoff.graph.load import Model
from roundoff.graph.preparation.draft import named
from roundoff.graph.preparation.steps import Prepared, prepare
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.save import DeferredModel
from roundoff.measure.metrics import OutputAgreement
from roundoff.quantize.agreement import PreparationCheck, check_preparation, compare_outputs, spread
from roundoff.quantize.calibration.calibration import Calibration
from roundoff.quantize.calibration.registry import get_method, options_of
from roundoff.quantize.calibration.run import calibrate
from roundoff.quantize.parameters import Numbers, find_parameters, planned_with, sum_notes, weight_parameters
from roundoff.quantize.plan_file import subgraph_notes
from roundoff.quantize.planning.planner import plan_quantization
from roundoff.run.feeds import Samples

__all__ = ["MethodTrial", "Quantization", "QuantizeSettings", "quantize_model"]

# Samples on which outputs are compared; the figure is a first impression, `roundoff layers` measures on all.
_CHECKED_SAMPLES = 16
# To choose between methods takes more, and a difference below this many decibels is noise.
_CHOOSING_SAMPLES, _NOISE_DB = 64, 0.5


@dataclass(frozen=True, slots=True)
class QuantizeSettings:
    """How to quantize.

    Attributes:
        target: For which chip.
        rules: Wishes for single nodes.
        methods: Calibration methods of activations; with several the first whose outputs agree as well as
            those of the best is taken.
            The target's own when empty.
        weight_method: Calibration method of weights; the target's own when empty.
        options: Options of the calibration methods.
        threads: Threads to use; all cores by default.
        max_memory: Bytes the process may take.
    """

    target: Target
    rules: tuple[Rule, ...] = ()
    methods: tuple[str, ...] = ()
    weight_method: str = ""
    options: Mapping[str, float] = field(default_factory=dict)
    threads: int | None = None
    max_memory: int | None = None


@dataclass(frozen=True, slots=True)
class MethodTrial:
    """One calibration method, tried on the same statistics as the others.

    Attributes:
        method: Its name.
        plan: The plan with it.
        numbers: The scales it gives.
        agreement: How the outputs agree with those of the float model.
    """

    method: str
    plan: QuantPlan
    numbers: Numbers
    agreement: tuple[OutputAgreement, ...]

    @property
    def sqnr_db(self) -> float:
        """Signal to noise at the output that is worst off, of those that hold numbers."""
        scores = [each.score for each in self.agreement]
        if any(score.status == "shape" for score in scores):
            return float("-inf")
        return min((score.values["sqnr_db"] for score in scores if score.values), default=0.0)


@dataclass(frozen=True, slots=True)
class Quantization:
    """A quantized model, how it came about, and how its outputs agree with those of the float model.

    Attributes:
        target: For which chip.
        prepared: The float model with batch normalization folded and the like.
        check: That this changed nothing; None when there were no samples to check it on.
        calibration: What was observed; serves other plans too.
        best: The method taken.
        trials: All methods that were tried, in the order asked for.
        remarks: What the plan leaves in float inside of subgraphs, and sums that the target cannot hold.
    """

    target: Target
    prepared: Prepared
    check: PreparationCheck | None
    calibration: Calibration
    best: MethodTrial
    trials: tuple[MethodTrial, ...]
    remarks: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know."""
        checked = () if self.check is None else self.check.notes
        return (*self.prepared.notes, *checked, *self.calibration.notes, *self.best.numbers.notes, *self.remarks)

    @property
    def quantized(self) -> QuantizedModel:
        """The float model and its quantizers."""
        return QuantizedModel(self.prepared.model, self.best.numbers.quantizers, preparation=self.notes)

    def fake_quant_model(self) -> DeferredModel:
        """The model with quantize-dequantize pairs, ready to be saved."""
        return fake_quant_model(self.prepared.model, self.best.numbers.quantizers)

    def deploy_model(self) -> DeferredModel:
        """The model with integer weights and biases, ready to be saved."""
        return deploy_model(self.prepared.model, self.best.numbers.quantizers)


def quantize_model(
    model: Model,
    samples: Samples | None,
    settings: QuantizeSettings,
    *,
    calibration: Calibration | None = None,
    progress: Progress = SILENT,
) -> Quantization:
    """Quantize a float model for a target.

    Args:
        model: The float model.
        samples: What activations are observed on, and outputs compared on. None with an earlier calibration and
            one method: outputs are then not compared.
        settings: For which chip, and how.
        calibration: Statistics of an earlier calibration of the same model; samples are then only compared on.
        progress: Told of every sample.

    Raises:
        BadInput: The model, the samples or the settings do not fit together.
        ModelFailed: The model cannot be run.
    """
    prepared = prepare(model)
    plans = {method: _plan(prepared, settings, method) for method in _methods(settings)}
    weights = weight_parameters(next(iter(plans.values())), prepared.model, options=settings.options)
    check = None if samples is None else check_preparation(model, prepared.model, samples)
    if calibration is None:
        if samples is None:
            raise BadInput("Calibration needs samples and none were given.", fix="add --data PATH")
        calibration = _observe(prepared, plans, samples, settings, weights=weights, progress=progress)
    if samples is None and len(plans) > 1:
        what = (
            f"To choose between {' and '.join(plans)}, outputs must be compared on samples, and none were given."
        )
        raise BadInput(what, fix="add --data PATH, or name one method")
    most = _CHECKED_SAMPLES if len(plans) == 1 else _CHOOSING_SAMPLES
    trials = []
    for method, plan in plans.items():
        ranges = _Ranges(calibration, settings.options)
        numbers = find_parameters(plan, prepared.model, ranges, weights=weights, options=settings.options)
        agreement: tuple[OutputAgreement, ...] = ()
        if samples is not None:
            agreement = compare_outputs(
                prepared.model,
                switch_on(prepared.model, numbers.quantizers),
                samples,
                indices=spread(len(samples.names), most),
                threads=settings.threads,
                progress=progress,
            )
        trials.append(MethodTrial(method, plan, numbers, agreement))
    limit = max(trial.sqnr_db for trial in trials) - _NOISE_DB
    best = next(trial for trial in trials if trial.sqnr_db >= limit)
    remarks = (
        *subgraph_notes(prepared.model, best.plan),
        *sum_notes(prepared.model, best.numbers.quantizers, settings.target, samples=samples),
    )
    return Quantization(settings.target, prepared, check, calibration, best, tuple(trials), remarks)


def _methods(settings: QuantizeSettings) -> tuple[str, ...]:
    """The methods to try, checked before anything runs; an option that none of them has would be ignored."""
    names = tuple(dict.fromkeys(settings.methods)) or (settings.target.calibration.method,)
    weight_method = settings.weight_method or settings.target.calibration.weight_method
    chosen = [get_method(name) for name in (*names, weight_method)]
    known = {option for each in chosen for option in options_of(each, settings.options)}
    for option in settings.options:
        if option not in known:
            what = (
                f"The option {option!r} has no effect with {' and '.join(dict.fromkeys((*names, weight_method)))}."
            )
            raise BadInput(what, fix="leave it out, or choose the calibration method it belongs to")
    return names


def _plan(prepared: Prepared, settings: QuantizeSettings, method: str) -> QuantPlan:
    plan = plan_quantization(
        prepared.model,
        settings.target,
        rules=settings.rules,
        origins=prepared.origins,
        method=method,
        weight_method=settings.weight_method,
    )
    if not plan.quantizers:
        raise _nothing(prepared, settings)
    return plan


def _nothing(prepared: Prepared, settings: QuantizeSettings) -> BadInput:
    """Why nothing is quantized: the rules, functions that nobody looks into, or operations of others."""
    target, proto, path = settings.target, prepared.model.proto, prepared.model.path
    bare = plan_quantization(prepared.model, target, origins=prepared.origins) if settings.rules else None
    if bare is not None and bare.quantizers:
        what = f"The rules leave nothing of {path} to quantize: with them, all of it stays in float."
        return BadInput(what, fix="leave a rule out, or let it name fewer nodes")
    own = {(function.domain, function.name) for function in proto.functions}
    calls = [node.name for node in proto.graph.node if (node.domain, node.op_type) in own]
    what = f"Nothing in {path} can be quantized for the target {target.name!r}"
    if calls:
        is_call = "is a call of a function" if len(calls) == 1 else "are calls of functions"
        return BadInput(
            f"{what}: {named(calls)} {is_call} that the model defines, and these are not looked into.",
            fix="inline them: onnx.inliner.inline_local_functions(model)",
        )
    foreign = {f"{node.domain}.{node.op_type}" for node in proto.graph.node if node.domain not in ("", "ai.onnx")}
    if foreign:
        return BadInput(
            f"{what}: it has no integer versions of {named(sorted(foreign))}, which are not standard ONNX.",
            fix="export the model with standard operations; of one that a runtime optimized, take the original",
        )
    fix = f"see 'roundoff targets {target.name}' for the operations it has integer versions of"
    return BadInput(f"{what}.", fix=fix)


def _observe(
    prepared: Prepared,
    plans: Mapping[str, QuantPlan],
    samples: Samples,
    settings: QuantizeSettings,
    *,
    weights: Mapping[str, QuantParams],
    progress: Progress,
) -> Calibration:
    """Run the model once over all samples and gather what every method needs."""
    bare = replace(settings, rules=())
    planned = next(iter(plans.values())).quantizers
    # Tensors that only other rules would quantize are observed too, so that a change of rules needs no new run.
    wanted = {
        each.tensor: each.spec.axis
        for each in (*_plan(prepared, bare, next(iter(plans))).quantizers, *planned)
        if each.kind == "activation" and each.fixed_range is None
    }
    observed = prepared.model
    if settings.target.calibration.weights_first:
        fixed = [planned_with(each, weights[each.name]) for each in planned if each.name in weights]
        observed = switch_on(prepared.model, fixed)
    return calibrate(
        observed,
        samples,
        wanted,
        detail="range" if set(plans) == {"minmax"} else "histogram",
        threads=settings.threads,
        max_memory=settings.max_memory,
        progress=progress,
    )


@dataclass(frozen=True, slots=True)
class _Ranges:
    """Statistics with the options of the methods filled in."""

    calibration: Calibration
    options: Mapping[str, float]

    def range(self, tensors: Sequence[str], spec: QuantSpec, method: str) -> tuple[Array, Array]:
        return self.calibration.range(tensors, spec, method, self.options)
