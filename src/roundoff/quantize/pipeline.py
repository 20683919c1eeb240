"""The whole way from a float model and samples to a quantized one: prepare, plan, calibrate, decide, check."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from roundoff.core.coverage import Judgement
from roundoff.core.plan import Precision, QuantPlan, Recipe, Rule
from roundoff.core.progress import NO_DEADLINE, SILENT, Deadline, Progress
from roundoff.core.target import Target
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.block_weights import block_products
from roundoff.graph.draft import MOST_NAMED, named
from roundoff.graph.insertion import deploy_model, fake_quant_model, switch_on
from roundoff.graph.load import Model
from roundoff.graph.nodes import STANDARD_DOMAINS, all_nodes, captured, subgraphs
from roundoff.graph.preparation.steps import Prepared
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.save import DeferredModel
from roundoff.measure.metrics import OutputAgreement
from roundoff.messages.message import Message, english, joined, message, some
from roundoff.quantize.agreement import (
    JUDGE_SHARE,
    JudgedOutputs,
    PreparationCheck,
    check_preparation,
    judge_outputs,
)
from roundoff.quantize.calibration.calibration import Calibration, Observe
from roundoff.quantize.calibration.methods import get_method, options_of
from roundoff.quantize.parameters import QuantNumbers, level_notes, sum_notes
from roundoff.quantize.planning.planner import plan_quantization
from roundoff.quantize.recipes import CALIBRATION_SHARE, BuildSettings, RecipeBuilder
from roundoff.run.bench import Bench, spread
from roundoff.run.capture import NO_INPUTS, Samples

# Between calibration methods a difference below this many decibels is noise.
_NOISE_DB = 0.5
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, slots=True)
class QuantizeSettings:
    """How to quantize.

    Attributes:
        target: For which chip.
        rules: Requests for single nodes.
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
        recipe: How the model is made with it.
        plan: The plan with it.
        numbers: The scales it gives.
        agreement: How the outputs agree with those of the float model.
        judged: The same with what it is worth; None without samples to compare on.
    """

    method: str
    recipe: Recipe
    plan: QuantPlan
    numbers: QuantNumbers
    agreement: tuple[OutputAgreement, ...]
    judged: JudgedOutputs | None = None

    @property
    def sqnr_db(self) -> float:
        """Signal to noise at the output that is worst off, of those that hold numbers."""
        return self.measured_db or 0.0

    @property
    def measured_db(self) -> float | None:
        """The same; None where no output was measured."""
        scores = [each.score for each in self.agreement]
        if any(score.status == "shape" for score in scores):
            return float("-inf")
        return min((score.values["sqnr_db"] for score in scores if "sqnr_db" in score.values), default=None)


@dataclass(frozen=True, slots=True)
class Quantization:
    """A quantized model, how it came about, and how its outputs agree with those of the float model.

    Attributes:
        builder: What made it, and makes other recipes from the same preparation and statistics.
        check: That preparing the model changed nothing; None when there were no samples to check it on.
        best: The method taken.
        trials: All methods that were tried, in the order asked for.
        remarks: What the plan leaves in float inside of subgraphs, and sums that the target cannot hold.
        on_samples: What is to be said of the samples, before anything else.
        skipped: What there was no time for.
    """

    builder: RecipeBuilder
    check: PreparationCheck | None
    best: MethodTrial
    trials: tuple[MethodTrial, ...]
    remarks: tuple[Message, ...] = ()
    on_samples: tuple[Message, ...] = ()
    skipped: tuple[Message, ...] = ()

    @property
    def target(self) -> Target:
        """For which chip."""
        return self.builder.target

    @property
    def prepared(self) -> Prepared:
        """The float model with batch normalization folded and the like."""
        return self.builder.prepared

    @property
    def float_model(self) -> Model:
        """The prepared model as the steps of the recipe leave it: what is quantized."""
        return self.builder.float_model(self.best.recipe)

    @property
    def calibration(self) -> Calibration:
        """What was observed; serves other plans too."""
        return self.builder.calibration(self.best.recipe)

    @property
    def notes(self) -> tuple[Message, ...]:
        """What the user should know."""
        checked = () if self.check is None else self.check.notes
        steps = (note for step in self.builder.reports(self.best.recipe) for note in step.notes)
        said = (*self.on_samples, *self.prepared.notes, *checked, *steps, *self.calibration.notes)
        return (*said, *self.best.numbers.notes, *self.remarks)

    @property
    def quantized(self) -> QuantizedModel:
        """The float model and its quantizers."""
        return QuantizedModel(self.float_model, self.best.numbers.quantizers, preparation=self.notes)

    def fake_quant_model(self) -> DeferredModel:
        """The model with quantize-dequantize pairs, ready to be saved."""
        return fake_quant_model(self.float_model, self.best.numbers.quantizers)

    @property
    def judgement(self) -> Judgement | None:
        """What the judge says of the chosen model against its own float model; None where that is another one."""
        judged = self.best.judged
        return None if judged is None or self.float_model is not self.builder.prepared.model else judged.judgement

    def deploy_model(self) -> DeferredModel:
        """The model with integer weights and biases, ready to be saved."""
        return deploy_model(self.float_model, self.best.numbers.quantizers)


def quantize_model(  # noqa: PLR0913 - what is quantized, how, and where activations are observed
    model: Model,
    samples: Samples | None,
    settings: QuantizeSettings,
    *,
    calibration: Calibration | None = None,
    explore: bool = False,
    observe: Observe | None = None,
    progress: Progress = SILENT,
    deadline: Deadline = NO_DEADLINE,
) -> Quantization:
    """Quantize a float model for a target.

    Args:
        model: The float model.
        samples: What activations are observed on, and outputs compared on. None with an earlier calibration and
            one method: outputs are then not compared.
        settings: For which chip, and how.
        calibration: Statistics of an earlier calibration of the same model; samples are then only compared on.
        explore: Whether to observe what other recipes would quantize, too: whoever goes on with the `builder` of
            the result then needs no other run.
        observe: Observes in other processes; None for nobody.
        progress: Told of every sample.
        deadline: When all has to be done, what comes after it included: the less time there is, the fewer samples
            are used, and what nothing else needs is skipped.

    Raises:
        BadInput: The model, the samples or the settings do not fit together.
        ModelFailed: The model cannot be run.
    """
    recipes, ours = _recipes(settings), deadline.share(CALIBRATION_SHARE)
    making = BuildSettings(
        settings.options,
        settings.threads,
        settings.max_memory,
        progress,
        recipes=recipes,
        explore=explore,
        calibration=calibration,
        observe=observe,
        deadline=deadline,
    )
    builder = RecipeBuilder(model, NO_INPUTS if samples is None else samples, settings.target, making=making)
    recipes = tuple(map(builder.plain, recipes))
    if not all(builder.plan(recipe).quantizers for recipe in recipes):
        raise _nothing(builder.prepared, settings)
    # What is wrong with weights is told before anything runs.
    builder.weights(recipes[0])
    prepared = builder.prepared
    if samples is None and calibration is None:
        raise BadInput(english("Calibration needs samples and none were given."), fix=english("add --data PATH"))
    if samples is None and len(recipes) > 1:
        names = " and ".join(recipe.method for recipe in recipes)
        what = english(
            "To choose between {names}, outputs must be compared on samples, and none were given.", names=names
        )
        raise BadInput(what, fix=english("add --data PATH, or name one method"))
    trials = []
    for recipe in recipes:
        built = builder.build(recipe)
        judged: JudgedOutputs | None = None
        if samples is not None:
            quantized = switch_on(built.quantized.float_model, built.numbers.quantizers)
            judged = judge_outputs(
                prepared.model,
                quantized,
                samples,
                deadline=deadline.share(JUDGE_SHARE),
                hurried=builder.hurried,
                threads=settings.threads,
                progress=progress,
            )
        method = recipe.method or settings.target.calibration.method
        agreement = () if judged is None else judged.agreement
        trials.append(MethodTrial(method, recipe, built.plan, built.numbers, agreement, judged))
    limit = max(trial.sqnr_db for trial in trials) - _NOISE_DB
    best = next(trial for trial in trials if trial.sqnr_db >= limit)
    changed, quantizers = builder.float_model(best.recipe), best.numbers.quantizers
    remarks = subgraph_notes(changed, best.plan)
    if not ours.allows(0):
        skipped = [message("quantize.skip_preparation"), message("quantize.skip_remarks")]
        seen = builder.calibration(best.recipe)
        if seen.left_out:
            every = seen.samples + seen.left_out
            skipped.insert(0, message("quantize.skip_samples", count=seen.left_out, all=every))
        return Quantization(builder, None, best, tuple(trials), remarks, skipped=tuple(skipped))
    check = None if samples is None else check_preparation(model, prepared.model, samples)
    remarks = (*remarks, *sum_notes(changed, quantizers, settings.target, samples=samples))
    if samples is not None:
        remarks = (*remarks, *level_notes(changed, quantizers, samples, max_memory=settings.max_memory))
        if settings.target.weight_block:
            remarks = (*remarks, *wide_weights(builder, best, samples, settings))
    return Quantization(builder, check, best, tuple(trials), remarks)


# What a weight costs alone is told by so few samples; so many of the costliest are named at most.
_RANKED_ON, _MOST_WIDE = 2, 16
_WIDE = "s8"


def wide_weights(
    builder: RecipeBuilder, trial: MethodTrial, samples: Samples, settings: QuantizeSettings
) -> tuple[Message, ...]:
    """Which weights of fewer than 8 bits should stay at 8, where outputs are not fine: by what each costs alone.

    Args:
        builder: What made the model.
        trial: The model.
        samples: What it is measured on.
        settings: For which chip.
    """
    model, numbers = builder.float_model(trial.recipe), trial.numbers
    products = {part.rows: name for name, part in block_products(model).items()}
    narrow = [each for each in numbers.quantizers if each.tensor in products and each.spec.bits < 8]
    judged = trial.judged
    if not narrow or judged is None or judged.judgement.grade == "fine" or _WIDE not in settings.target.weights:
        return ()
    bench = Bench(model, samples, threads=settings.threads, keep=True, max_memory=settings.max_memory)
    costs: dict[str, float] = {}
    chosen, exact = spread(len(samples.names), _RANKED_ON), bench.open()
    wanted = [found for [found] in bench.run(chosen, exact)]
    for each in narrow:
        ran = (found for [found] in bench.run(chosen, bench.open([each])))
        costs[products[each.tensor]] = sum(map(_error_share, wanted, ran))
    order = sorted(costs, key=lambda name: -costs[name])
    best: tuple[float, list[str], str] | None = None
    count = 1
    while count <= min(_MOST_WIDE, len(order)):
        rules = (*trial.recipe.rules, *(Rule("node", (name,), Precision(weight=_WIDE)) for name in order[:count]))
        built = builder.build(replace(trial.recipe, rules=rules))
        network = switch_on(model, built.numbers.quantizers)
        other = judge_outputs(builder.prepared.model, network, samples, threads=settings.threads)
        tried = replace(trial, agreement=other.agreement)
        best = tried.sqnr_db, order[:count], str(other.judgement.grade)
        if other.judgement.grade == "fine":
            break
        count *= 2
    if best is None:
        return ()
    named = some(best[1], _MOST_WIDE, quoted=True)
    before, after = f"{trial.sqnr_db:.1f}", f"{best[0]:.1f}"
    grade = message(f"quantize.word_{best[2]}")
    return (message("quantize.stay_wide", nodes=named, dtype=_WIDE, before=before, after=after, grade=grade),)


def _error_share(wanted: Mapping[str, Array], found: Mapping[str, Array]) -> float:
    """Energy of the error over that of the outputs, of one sample."""
    pairs = [(wanted[name].astype(np.float64), found[name].astype(np.float64)) for name in wanted]
    energy = sum(float(np.square(ours).sum()) for ours, _ in pairs)
    return sum(float(np.square(ours - theirs).sum()) for ours, theirs in pairs) / max(energy, _TINY)


def _recipes(settings: QuantizeSettings) -> tuple[Recipe, ...]:
    """A recipe for each method to try. An option that none of them has would be ignored, and is refused."""
    names = tuple(dict.fromkeys(settings.methods)) or (settings.target.calibration.method,)
    weight_method = settings.weight_method or settings.target.calibration.weight_method
    chosen = [get_method(name) for name in (*names, weight_method)]
    known = {option for each in chosen for option in options_of(each, settings.options)}
    for option in settings.options:
        if option not in known:
            what = english(
                "The option {option!r} has no effect with {fromkeys}.",
                option=option,
                fromkeys=" and ".join(dict.fromkeys((*names, weight_method))),
            )
            raise BadInput(what, fix=english("leave it out, or choose the calibration method it belongs to"))
    # Where nobody names a method the recipe does not either, and means that of the target.
    asked = names if settings.methods else ("",)
    return tuple(Recipe(method=name, weight_method=settings.weight_method, rules=settings.rules) for name in asked)


def _nothing(prepared: Prepared, settings: QuantizeSettings) -> BadInput:
    """Why nothing is quantized: the rules, functions that nobody looks into, or operations of others."""
    target, proto, path = settings.target, prepared.model.proto, prepared.model.path
    bare = plan_quantization(prepared.model, target, origins=prepared.origins) if settings.rules else None
    if bare is not None and bare.quantizers:
        what = english(
            "The rules leave nothing of {path} to quantize: with them, all of it stays in float.", path=path
        )
        return BadInput(what, fix=english("leave a rule out, or let it name fewer nodes"))
    own = {(function.domain, function.name) for function in proto.functions}
    calls = [node.name for node in proto.graph.node if (node.domain, node.op_type) in own]
    what = english("Nothing in {path} can be quantized for the target {name!r}", path=path, name=target.name)
    if calls:
        is_call = english("is a call of a function") if len(calls) == 1 else english("are calls of functions")
        return BadInput(
            english(
                "{what}: {named} {is_call} that the model defines, and these are not looked into.",
                what=what,
                named=named(calls),
                is_call=is_call,
            ),
            fix=english("inline them: onnx.inliner.inline_local_functions(model)"),
        )
    foreign = {f"{node.domain}.{node.op_type}" for node in proto.graph.node if node.domain not in STANDARD_DOMAINS}
    if foreign:
        return BadInput(
            english(
                "{what}: it has no integer versions of {named}, which are not standard ONNX.",
                what=what,
                named=named(sorted(foreign)),
            ),
            fix=english(
                "export the model with standard operations; of one that a runtime optimized, take the original"
            ),
        )
    fix = english("see 'roundoff targets {name}' for the operations it has integer versions of", name=target.name)
    return BadInput(english("{what}.", what=what), fix=fix)


# What a plan leaves in float inside of If, Loop and Scan, where no quantizer sits.

_TYPES = 3


def subgraph_notes(model: Model, plan: QuantPlan) -> tuple[Message, ...]:
    """One note for each node with subgraphs that compute something.

    Args:
        model: The model that is quantized.
        plan: What is quantized of it.
    """
    quantized = {each.tensor for each in plan.quantizers}
    return tuple(_note(node, quantized) for node in model.proto.graph.node if any(_inside(node)))


def _note(node: Any, quantized: set[str]) -> Message:
    types = Counter(each.op_type for each in _inside(node))
    most = sorted(types.items(), key=lambda each: (-each[1], each[0]))[:_TYPES]
    listed = ", ".join(f"{count} {op_type}" for op_type, count in most)
    more = ", ..." if len(types) > _TYPES else ""
    text = message(
        "quantize.inside_float", count=types.total(), node=repr(node.name), op=node.op_type, types=listed + more
    )
    read = [name for name in captured(node) if name in quantized]
    if not read:
        return text
    return joined((text, message("quantize.inside_reads", names=some(read, MOST_NAMED, quoted=True))))


def _inside(node: Any) -> Iterator[Any]:
    """The nodes of all subgraphs, in all depths, without those that only hold constants."""
    inside = (inner for graph in subgraphs(node) for inner in all_nodes(graph))
    return (inner for inner in inside if inner.op_type != "Constant")
