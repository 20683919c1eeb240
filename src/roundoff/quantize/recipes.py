"""From recipes to quantized models: prepared once, observed once for each chain of transforms, not per recipe."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from roundoff.core.plan import PlannedQuantizer, Precision, QuantPlan, Recipe, Rule, Step
from roundoff.core.progress import NO_DEADLINE, SILENT, Deadline, Progress
from roundoff.core.quantizers import Consumer, QuantParams, QuantSpec
from roundoff.core.target import Target
from roundoff.core.tensors import Array
from roundoff.errors import BadInput, StepFailed, nearest
from roundoff.graph.block_weights import block_products
from roundoff.graph.blocks import node_products
from roundoff.graph.insertion import switch_on
from roundoff.graph.load import Model
from roundoff.graph.preparation.steps import Prepared, prepare
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.shapes import values
from roundoff.graph.weights import Weights
from roundoff.messages.message import Message, english, joined, message
from roundoff.quantize.calibration.calibration import Calibration, Observe, calibrate, compare_methods
from roundoff.quantize.calibration.methods import Detail, all_methods
from roundoff.quantize.parameters import QuantNumbers, find_parameters, planned_with, weight_parameters
from roundoff.quantize.planning.planner import plan_quantization
from roundoff.quantize.step_report import StepReport
from roundoff.quantize.steps import INSTALLED, Corrections, StepContext, StepLibrary, StepOutcome
from roundoff.quantize.transforms.clamp_mask import CLAMP_MASK, biased_attentions
from roundoff.quantize.transforms.layer_forms import BLOCK_WEIGHTS
from roundoff.run.capture import Samples

# What may be done otherwise than a target does by default, within what it allows.

PER_CHANNEL = "per_channel"
"""Weights have a scale per slice wherever the target can have one."""

BIAS_CORRECTION, EXPLICIT_BIAS = "bias_correct", "explicit_bias"
"""The correction of biases, and the transform that makes a place for it in layers without one."""

SHARED_SCALE = "shared_scale:"
"""With an op type behind it: inputs and output of these operations share one scale, and are not rounded twice."""

_ALIGNED = ("Add", "Concat")


def possible_variations(target: Target, model: Model) -> tuple[str, ...]:
    """The variations that would change something in a model, cheap ones first."""
    used = {node.op_type for node in model.proto.graph.node}
    more = {op: axis for op, axis in target.weight_axes_possible.items() if target.weight_axes.get(op) != axis}
    found = [PER_CHANNEL] if used & set(more) else []
    if not target.float_results:
        tied = target.shared_scale | target.pass_through
        found += [SHARED_SCALE + op for op in _ALIGNED if op in used & target.quantized_ops and op not in tied]
    return tuple(found)


def varied_target(target: Target, variations: Iterable[str]) -> Target:
    """A target that does some things otherwise.

    Raises:
        BadInput: There is no such variation, or the target does not allow it.
    """
    for variation in variations:
        if variation == PER_CHANNEL and target.weight_axes_possible:
            target = replace(target, weight_axes={**target.weight_axes, **target.weight_axes_possible})
        elif variation.startswith(SHARED_SCALE) and not target.float_results:
            op = variation.removeprefix(SHARED_SCALE)
            if op not in target.quantized_ops:
                what = english(
                    "The target {name!r} has no integer version of {op!r} to share scales of.",
                    name=target.name,
                    op=op,
                )
                raise BadInput(what, fix=nearest(op, target.quantized_ops))
            target = replace(target, shared_scale=target.shared_scale | {op})
        else:
            what = english(
                "The target {name!r} does not allow the variation {variation!r}.",
                name=target.name,
                variation=variation,
            )
            fix = english(
                "leave it out; weight_axes_possible in a target file allows {per_channel}", per_channel=PER_CHANNEL
            )
            raise BadInput(what, fix=fix)
    return target


CALIBRATION_SHARE = 0.5
"""Of a limited time this part of what is left may pass while ranges are found; the rest is for what uses them."""

# Whoever asks what a recipe costs builds it next.
_MOST_PLANS = 16


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """How recipes are made into models.

    Attributes:
        options: Options of calibration methods.
        threads: Threads to use; all cores by default.
        max_memory: Bytes the process may take; most of the free memory by default.
        progress: Told how far it is.
        folder: Where statistics are kept for a later run; nowhere when None.
        key: Identifies the model, the samples and the target in that folder.
        library: Applies transforms and corrections.
        fold: Whether batch normalization and the like are folded into the layers beside them.
        recipes: What is made for sure: activations are observed for these, behind weights that are rounded as the
            first of them says where the target rounds weights first.
        explore: Whether to observe what other recipes would quantize, too, so that none of them needs another run.
        calibration: Statistics of an earlier run of the model, before any transform; nothing is observed then.
        observe: Observes in other processes what `calibrate` observes here; None for nobody.
        deadline: When all has to be done; a part of what is left goes to each calibration made here.
    """

    options: Mapping[str, float] = field(default_factory=dict)
    threads: int | None = None
    max_memory: int | None = None
    progress: Progress = SILENT
    folder: Path | None = None
    key: str = ""
    library: StepLibrary = INSTALLED
    fold: bool = True
    recipes: tuple[Recipe, ...] = (Recipe(),)
    explore: bool = True
    calibration: Calibration | None = None
    observe: Observe | None = None
    deadline: Deadline = NO_DEADLINE


@dataclass(frozen=True, slots=True, eq=False)
class BuiltModel:
    """What a recipe gives.

    Attributes:
        recipe: The recipe.
        quantized: The float model, transformed, and its quantizers.
        plan: What each node became.
        calibration: What the scales were found from.
        numbers: The scales as they were found, before any correction.
        steps: What its transforms and corrections did, in their order.
        notes: What the user should know.
    """

    recipe: Recipe
    quantized: QuantizedModel
    plan: QuantPlan
    calibration: Calibration
    numbers: QuantNumbers
    steps: tuple[StepReport, ...]
    notes: tuple[Message, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Chain:
    """The float model after some transforms."""

    model: Model
    steps: tuple[StepReport, ...] = ()
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)


class RecipeBuilder:
    """Makes quantized models of one float model for one target.

    It is prepared once; a chain of transforms is applied and observed when the first recipe needs it.

    Args:
        model: The float model.
        samples: What activations are observed on.
        target: For which chip.
        making: Options, limits, and where statistics are kept.
        prepared: The model prepared before in the same way, where it was.

    Raises:
        BadInput: The model cannot be quantized at all.
    """

    def __init__(
        self,
        model: Model,
        samples: Samples,
        target: Target,
        *,
        making: BuildSettings | None = None,
        prepared: Prepared | None = None,
    ) -> None:
        self.target = target
        self._model, self._samples, self._making = model, samples, making or BuildSettings()
        self.prepared: Prepared = prepared or prepare(model, may_fold=lambda _: self._making.fold)
        self._context = StepContext(
            target,
            samples,
            threads=self._making.threads,
            max_memory=self._making.max_memory,
            progress=self._making.progress,
        )
        self._corrections = Corrections(self._making.library, self._context)
        self._chains: dict[tuple[Step, ...], _Chain] = {}
        self._calibrations: dict[tuple[Step, ...], Calibration] = {}
        if self._making.calibration is not None:
            self._calibrations[()] = self._making.calibration
            # What was observed before was observed of the network as it is made by default.
            self._calibrations[self.plain(Recipe()).transforms] = self._making.calibration
        self._weights: dict[tuple[tuple[Step, ...], PlannedQuantizer], QuantParams] = {}
        self._ranges: dict[tuple[Step, ...], _KnownRanges] = {}
        self._plans: dict[Recipe, QuantPlan] = {}
        self._best: dict[Recipe, tuple[tuple[str, str], ...]] = {}

    def on(self, samples: Samples) -> "RecipeBuilder":
        """The same with activations observed on other samples; itself where these are its own."""
        if samples is self._samples:
            return self
        making = replace(self._making, folder=None, key="", calibration=None, explore=True)
        return RecipeBuilder(self._model, samples, self.target, making=making, prepared=self.prepared)

    @property
    def hurried(self) -> bool:
        """Whether time ran out before all samples were observed, for any recipe."""
        return any(each.left_out for each in self._calibrations.values())

    @property
    def library(self) -> StepLibrary:
        """Which transforms and corrections there are."""
        return self._making.library

    @property
    def options(self) -> Mapping[str, float]:
        """Options of calibration methods."""
        return self._making.options

    def plain(self, recipe: Recipe) -> Recipe:
        """A recipe with what costs nothing and changes nothing.

        That is what the target's toolchain does to every network, masks limited, weights in the target's blocks.
        """
        steps, known = recipe.transforms, self.library.transforms()
        blocks, mask = Step(BLOCK_WEIGHTS, (("size", self.target.weight_block),)), Step(CLAMP_MASK)
        if self.target.weight_block and blocks not in steps and BLOCK_WEIGHTS in known:
            steps = (*steps, blocks)
        able = CLAMP_MASK in known and len(self._samples.names) > 0 and not self.target.weight_only
        if able and mask not in steps and biased_attentions(self.prepared.model):
            steps = (mask, *steps)
        rewrites = (Step(name) for name in self.target.rewrites if name in known)
        steps = (*(step for step in rewrites if step not in steps), *steps)
        return replace(recipe, transforms=steps)

    def variations(self) -> tuple[str, ...]:
        """Variations of the target that would change something."""
        return possible_variations(self.target, self.prepared.model)

    def plan(self, recipe: Recipe) -> QuantPlan:
        """What each node becomes; nothing is run but transforms, and calibration where tensors have own methods.

        Raises:
            BadInput: The recipe names what does not exist.
        """
        if recipe not in self._plans:
            while len(self._plans) >= _MOST_PLANS:
                del self._plans[next(iter(self._plans))]
            self._plans[recipe] = self._new_plan(recipe)
        return self._plans[recipe]

    def weights(self, recipe: Recipe) -> dict[str, QuantParams]:
        """Scales of weights; those that an earlier recipe had in the same way are not found again.

        Raises:
            BadInput: A weight or bias holds values that are not finite.
        """
        plan, model = self.plan(recipe), self._chain(recipe.transforms).model
        known = {each: (recipe.transforms, each) for each in plan.quantizers if each.kind != "activation"}
        missing = tuple(each for each, key in known.items() if key not in self._weights)
        found = weight_parameters(replace(plan, quantizers=missing), model, options=self._making.options)
        self._weights |= {known[each]: found[each.name] for each in missing if each.name in found}
        return {each.name: self._weights[key] for each, key in known.items() if key in self._weights}

    def float_model(self, recipe: Recipe) -> Model:
        """The float model as the transforms of a recipe leave it."""
        return self._chain(recipe.transforms).model

    def reports(self, recipe: Recipe) -> tuple[StepReport, ...]:
        """What the transforms of a recipe did."""
        return self._chain(recipe.transforms).steps

    def calibration(self, recipe: Recipe) -> Calibration:
        """What the scales of a recipe are found from; observed once for each chain of transforms.

        Raises:
            BadInput: The samples do not fit the model.
            ModelFailed: The model cannot be run.
        """
        steps = recipe.transforms
        if steps not in self._calibrations:
            # A transform that finds nothing to do leaves the network as it was, and what is observed of it.
            idle = bool(steps) and self._chain(steps).model is self._chain(steps[:-1]).model
            known = self._calibrations.get(steps[:-1]) if idle else None
            self._calibrations[steps] = self._observed(steps) if known is None else known
        return self._calibrations[steps]

    def build(self, recipe: Recipe) -> BuiltModel:
        """Make a quantized model.

        Raises:
            BadInput: The recipe names what does not exist, or cannot be applied.
            ModelFailed: The model cannot be run.
        """
        chain, calibration = self._chain(recipe.transforms), self.calibration(recipe)
        options, plan = self._making.options, self.plan(recipe)
        ranges = self._ranges.setdefault(recipe.transforms, _KnownRanges(calibration, options))
        numbers = find_parameters(plan, chain.model, ranges, weights=self.weights(recipe), options=options)
        quantized = QuantizedModel(chain.model, numbers.quantizers)
        steps = list(chain.steps)
        for step in recipe.corrections:
            corrected = self._corrections.apply(step, quantized)
            quantized = corrected.model
            steps.append(StepReport(step.name, "correction", _options(step), corrected.taken, corrected.notes))
        said = [note for each in steps for note in each.notes]
        notes = tuple(dict.fromkeys((*self.prepared.notes, *said, *calibration.notes, *numbers.notes)))
        return BuiltModel(recipe, replace(quantized, notes=notes), plan, calibration, numbers, tuple(steps), notes)

    def best_methods(self, recipe: Recipe) -> tuple[tuple[str, str], ...]:
        """For each observed tensor the method whose range costs least there, if that is not the recipe's own."""
        if recipe not in self._best:
            self._best[recipe] = tuple(sorted(self._find_methods(recipe).items()))
        return self._best[recipe]

    def _find_methods(self, recipe: Recipe) -> dict[str, str]:
        calibration = self.calibration(recipe)
        names = [method.name for method in all_methods()]
        own = recipe.method or self.target.calibration.method
        found = {}
        for planned in self.plan(recipe).quantizers:
            if planned.kind != "activation" or planned.fixed_range is not None or planned.group:
                continue
            results = compare_methods(calibration, [planned.tensor], planned.spec, names, self._making.options)
            errors = {each.method: each.error.mse for each in results}
            best = min(names, key=lambda name: (errors[name], name != own, names.index(name)))
            if errors[best] < errors[own]:
                found[planned.tensor] = best
        return found

    def _new_plan(self, recipe: Recipe) -> QuantPlan:
        chain = self._chain(recipe.transforms)
        # Rows of blocks are the same weights: what each node gets is decided by the matrices that they make.
        whole = tuple(step for step in recipe.transforms if step.name != BLOCK_WEIGHTS)
        plan = plan_quantization(
            self._chain(whole).model,
            varied_target(self.target, recipe.variations),
            rules=recipe.rules,
            origins=self.prepared.origins,
            method=recipe.method,
            weight_method=recipe.weight_method,
        )
        plan = replace(plan, quantizers=_with_ranges(plan.quantizers, chain.ranges))
        if whole != recipe.transforms:
            plan = replace(plan, quantizers=_in_blocks(plan.quantizers, chain.model))
        if not recipe.tensor_methods:
            return plan
        observed = self.calibration(recipe)
        for tensor, _ in recipe.tensor_methods:
            # One that the rules leave in float needs no range; one that nothing quantizes is a mistake.
            if tensor not in observed.observations:
                what = english("No calibration method finds a range for the tensor {tensor!r}.", tensor=tensor)
                raise BadInput(what, fix=nearest(tensor, observed.observations))
        return replace(plan, quantizers=_with_methods(plan.quantizers, dict(recipe.tensor_methods)))

    def _chain(self, steps: tuple[Step, ...]) -> _Chain:
        if steps in self._chains:
            return self._chains[steps]
        chain = _Chain(self.prepared.model)
        if steps:
            before, last = self._chain(steps[:-1]), steps[-1]
            try:
                done = self.library.transform(last, before.model, self._context)
            except StepFailed as error:
                # Nobody asked for what is done because it is free: without it the rest is as good as before.
                if last != Step(CLAMP_MASK):
                    raise
                left = message("quantize.free_step_failed", name=last.name, why=error.why)
                done = StepOutcome(before.model, (), (left,))
            report = StepReport(last.name, "transform", _options(last), tuple(done.taken), tuple(done.notes))
            chain = _Chain(done.model, (*before.steps, report), {**before.ranges, **done.ranges})
        self._chains[steps] = chain
        return chain

    def _observed(self, steps: tuple[Step, ...]) -> Calibration:
        """Statistics of every tensor that a recipe may quantize, from the disk or a run."""
        making, model, file = self._making, self._chain(steps).model, None
        if making.folder is not None:
            file = making.folder / f"statistics-{len(steps)}-{_short_hash(repr(steps))}.npz"
            from roundoff.quantize.calibration.files import load_calibration

            if file.exists():
                return load_calibration(file, model_hash=making.key)
        recipes = [replace(each, transforms=steps, tensor_methods=()) for each in making.recipes]
        weights = self.weights(recipes[0])
        observed = model
        if self.target.calibration.weights_first:
            fixed = [each for each in self.plan(recipes[0]).quantizers if each.name in weights]
            observed = switch_on(model, [planned_with(each, weights[each.name]) for each in fixed])
        # A histogram costs a second look at every value; the smallest and largest are all that minmax asks for.
        methods = {each.method or self.target.calibration.method for each in recipes}
        ranges_do = not making.explore and methods == {"minmax"}
        detail: Detail = "range" if ranges_do else "histogram"
        wanted = self._wanted(recipes[0])
        if making.observe is not None:
            found = making.observe(observed, self._samples, wanted, detail)
        else:
            found = calibrate(
                observed,
                self._samples,
                wanted,
                detail=detail,
                threads=making.threads,
                max_memory=making.max_memory,
                progress=making.progress,
                deadline=making.deadline.share(CALIBRATION_SHARE),
            )
        if file is not None:
            from roundoff.quantize.calibration.files import save_calibration

            save_calibration(found, file, model_hash=making.key)
        return found

    def _wanted(self, recipe: Recipe) -> dict[str, int | None]:
        """Tensors that a recipe quantizes or would without its rules; to explore, those of other recipes, too."""
        bare = replace(recipe, rules=())
        others: list[Recipe] = []
        if self._making.explore:
            wide = [dtype for dtype in self.target.activations if int(dtype[1:]) > 8]
            others += [replace(bare, variations=(name,)) for name in self.variations()]
            others += [
                replace(bare, rules=(Rule("node", ("*",), Precision(dtype, "", dtype)),)) for dtype in wide[:1]
            ]
        return {
            each.tensor: each.spec.axis
            for plan in map(self.plan, (bare, recipe, *others))
            for each in plan.quantizers
            if each.kind == "activation" and each.fixed_range is None
        }


def _options(step: Step) -> dict[str, str]:
    return {name: str(value) for name, value in step.options}


def _short_hash(text: str) -> str:
    """A short name for a text."""
    import hashlib

    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _with_methods(
    quantizers: Sequence[PlannedQuantizer], methods: Mapping[str, str]
) -> tuple[PlannedQuantizer, ...]:
    """Quantizers with other methods for some tensors; one that shares its scale brings its group along."""
    able = {each.tensor: each for each in quantizers if each.kind == "activation" and each.method}
    methods = {tensor: method for tensor, method in methods.items() if tensor in able}
    groups = {able[tensor].group: method for tensor, method in methods.items() if able[tensor].group}
    found = []
    for each in quantizers:
        method = methods.get(each.tensor) or (groups.get(each.group) if each.group else None)
        found.append(
            replace(each, method=method) if method and each.kind == "activation" and each.method else each
        )
    return tuple(found)


def _with_ranges(
    quantizers: tuple[PlannedQuantizer, ...], ranges: Mapping[str, tuple[float, float]]
) -> tuple[PlannedQuantizer, ...]:
    """Quantizers with the ranges that transforms ask for; one that shares its scale brings its group along."""
    groups = {each.group: ranges[each.tensor] for each in quantizers if each.group and each.tensor in ranges}
    return tuple(
        replace(each, fixed_range=ranges.get(each.tensor) or groups[each.group])
        if each.kind == "activation" and (each.tensor in ranges or each.group in groups)
        else each
        for each in quantizers
    )


def _in_blocks(quantizers: tuple[PlannedQuantizer, ...], model: Model) -> tuple[PlannedQuantizer, ...]:
    """Quantizers of matrices as those of the rows that make them; a matrix that others read too keeps its own."""
    products, found = block_products(model), list[PlannedQuantizer]()
    for each in quantizers:
        parts = [products.get(consumer.node) for consumer in each.consumers] if each.kind == "weight" else []
        rest = tuple(at for at, part in zip(each.consumers, parts, strict=False) if part is None)
        for part in filter(None, parts):
            name = each.name if len(parts) == 1 else f"{each.name}_{part.node}"
            reader = (Consumer(part.joined, 0),)
            found.append(replace(each, name=name, tensor=part.rows, spec=each.spec.along(0), consumers=reader))
        if rest or not parts:
            found.append(replace(each, consumers=rest or each.consumers))
    return tuple(found)


class _KnownRanges:
    """Statistics with the options of the methods filled in; what was asked before is known."""

    def __init__(self, calibration: Calibration, options: Mapping[str, float]) -> None:
        self._calibration, self._options = calibration, options
        self._known: dict[tuple[tuple[str, ...], QuantSpec, str], tuple[Array, Array]] = {}

    def range(self, tensors: Sequence[str], spec: QuantSpec, method: str) -> tuple[Array, Array]:
        key = (tuple(tensors), spec, method)
        if key not in self._known:
            self._known[key] = self._calibration.range(tensors, spec, method, self._options)
        return self._known[key]


# What a quantized model costs on the chip beyond another one, counted in the models themselves.


CostKind = Literal["free", "nodes", "16 bit", "float"]
# Nodes that no chip computes.
_FREE_NODES = frozenset({"Constant", "Identity"})


@dataclass(frozen=True, slots=True)
class AddedCost:
    """What one quantized model has that another has not.

    Attributes:
        nodes: Nodes more.
        node_types: Their op types, the most frequent first.
        quantizers: Quantizers of activations more; each is a requantization.
        bits: The most bits that a tensor has of those that have more than before; 0 where none has.
        wide: Tensors with more bits than before.
        in_float: Tensors that were quantized and are not any more.
        products: Share of all products of activations and weights that these two concern.
    """

    nodes: int = 0
    node_types: tuple[str, ...] = ()
    quantizers: int = 0
    bits: int = 0
    wide: int = 0
    in_float: int = 0
    products: float = 0.0

    @property
    def kind(self) -> CostKind:
        """The dearest of it."""
        if self.in_float:
            return "float"
        if self.wide:
            return "16 bit"
        return "nodes" if self.nodes > 0 or self.quantizers > 0 else "free"

    @property
    def text(self) -> Message | None:
        """In words; None where it costs nothing."""
        parts = []
        if self.in_float:
            parts.append(message("quantize.cost_float", count=self.in_float))
        if self.wide:
            parts.append(message("quantize.cost_wide", count=self.wide, bits=self.bits))
        if parts and self.products:
            parts.append(message("quantize.cost_products", percent=f"{100 * self.products:.3g}"))
        if self.nodes > 0:
            parts.append(message("quantize.cost_nodes", count=self.nodes, types=self.node_types))
        if self.quantizers > 0:
            parts.append(message("quantize.cost_quantizers", count=self.quantizers))
        return joined(parts, key="terminal.comma") if parts else None


def added_cost(plain: QuantizedModel, model: QuantizedModel, feed: Mapping[str, Array] | None = None) -> AddedCost:
    """What a model costs beyond another one of the same network.

    Args:
        plain: The other one: plain int8, or the model before a repair.
        model: The model.
        feed: One sample, which decides how many products nodes compute; None to leave these out.
    """
    before, after = (_node_types(each) for each in (plain, model))
    more = after - before
    widths, ours = _widths(plain), _widths(model)
    usual = max(widths.values(), default=0)
    wide = {name for name, bits in ours.items() if bits > widths.get(name, usual)}
    nodes = model.float_model.proto.graph.node
    reads = {name for node in nodes for name in (*node.input, *node.output)}
    dropped = {name for name in widths if name not in ours and name in reads}
    # A layer may read 8 bits of what is stored in 16.
    reading = {node.name for node in nodes if dropped & set(node.input)} | {
        edge.node
        for each in model.quantizers
        if each.tensor in wide and each.spec.bits > widths.get(each.tensor, usual)
        for edge in each.consumers
    }
    sums = [sum(each.kind == "activation" for each in side.quantizers) for side in (plain, model)]
    return AddedCost(
        nodes=max(0, after.total() - before.total()),
        node_types=tuple(name for name, _ in more.most_common()),
        quantizers=max(0, sums[1] - sums[0] + len(dropped)),
        bits=max((ours[name] for name in wide), default=0),
        wide=len(wide),
        in_float=len(dropped),
        products=0.0 if feed is None or not wide | dropped else _share(model, reading, feed),
    )


def _node_types(model: QuantizedModel) -> "Counter[str]":
    nodes = model.float_model.proto.graph.node
    return Counter(node.op_type for node in nodes if node.op_type not in _FREE_NODES)


def _widths(model: QuantizedModel) -> dict[str, int]:
    """Bits of each tensor, biases left out: they are as wide as sums."""
    found: dict[str, int] = {}
    for each in model.quantizers:
        if each.kind != "bias":
            found[each.tensor] = max(each.spec.bits, found.get(each.tensor, 0))
    return found


def _share(model: QuantizedModel, nodes: set[str], feed: Mapping[str, Array]) -> float:
    """Share of the products that are computed by some of these nodes."""
    float_model, weights = model.float_model, Weights(model.float_model)
    known = values(float_model, {name: array.shape for name, array in feed.items()})
    shapes: dict[str, Any] = {each.name: each.shape for each in known if each.shape is not None}
    shapes |= {name: weights.shape(name) for name in weights.protos}
    counted = [(node, node_products(node, shapes)) for node in float_model.proto.graph.node]
    whole = sum(products for _, products in counted)
    concerned = sum(products for node, products in counted if node.name in nodes)
    return concerned / whole if whole else 0.0
