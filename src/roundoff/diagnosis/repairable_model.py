"""What can be repaired: the quantizers of a model that was given, or the recipe of one that is made here."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np

from roundoff.core.plan import FLOAT, Precision, Recipe, Rule, Step
from roundoff.core.quantizers import (
    Quantizer,
    QuantParams,
    QuantSpec,
    dequantize,
    quantize,
    representable_range,
)
from roundoff.core.target import Target
from roundoff.core.tensors import Array
from roundoff.diagnosis.controls import refitted
from roundoff.diagnosis.ideal import at_its_range
from roundoff.diagnosis.interventions import (
    InterventionRunner,
    can_fuse,
    rounded_again,
    with_bits,
    with_range,
    with_slice_ranges,
)
from roundoff.diagnosis.loss import Loss, LossMeter
from roundoff.diagnosis.result import RemedyChange
from roundoff.diagnosis.subject import Case, Fixes, Suspect, open_case
from roundoff.errors import BadInput, RoundoffError
from roundoff.graph.insertion import Edges
from roundoff.graph.nodes import producers
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.weights import Weights
from roundoff.quantize.agreement import compare_outputs
from roundoff.quantize.calibration.calibration import value_limits
from roundoff.quantize.recipes import BIAS_CORRECTION, EXPLICIT_BIAS, PER_CHANNEL, BuiltModel, RecipeBuilder
from roundoff.quantize.steps import TRANSFORMS, StepContext, apply_correction, correction_names
from roundoff.quantize.targets.files import load_target
from roundoff.run.capture import Samples
from roundoff.run.evaluators import Subset

# Carrying out the changes of remedies on the quantizers of a network.

# Two float32 products of the same scales differ by less.
_SAME_SCALE = 1e-4
_BIAS_INPUT = 2


def edit(case: Case, change: RemedyChange) -> Fixes:
    """The quantizers that a change puts in the place of others; none when it cannot be made in this way.

    Args:
        case: The network.
        change: One change of a remedy.
    """
    found: dict[str, Quantizer | None] = {}
    for suspect in _named(case, change):
        found |= _edited(case, suspect, change)
    return found


def _named(case: Case, change: RemedyChange) -> Iterator[Suspect]:
    tensors = set(change.tensors)
    for suspect in case.facts.suspects:
        everyone = change.kind == "recalibrate" and not tensors and suspect.kind == "activation"
        if everyone or tensors & set(suspect.tensors):
            yield suspect


def _edited(case: Case, suspect: Suspect, change: RemedyChange) -> Fixes:
    members = [case.facts.quantizers[name] for name in suspect.quantizers]
    found: Fixes = {}
    match change.kind:
        case "range" | "recalibrate":
            found = _ranges(case, suspect, change)
        case "codes":
            found = {each.name: rounded_again(each) for each in members}
        case "bits":
            bits = int(change.value[1:])
            found = {name: with_bits(each, bits) for name, each in _at_data(case, suspect).items()}
        case "float":
            found = dict.fromkeys(suspect.quantizers)
        case "per_channel" if suspect.kind == "weight":
            found = _per_channel(case, suspect, change)
    return found


# The next sample may reach a little further than all before it; a step that is wider by as much hardly shows.
_MARGIN = 0.05
# An end so much nearer than the values reach is meant to cut some of them off.
_CUT_OFF = 0.9


def _ranges(case: Case, suspect: Suspect, change: RemedyChange) -> Fixes:
    """A range for a suspect, found on the samples of the case: a diagnosis may have seen more of them, or fewer.

    One that cuts off some of their values has to lose less on them than one that does not.
    """
    if suspect.tensor not in case.facts.observed or change.low is None or change.high is None:
        return _at_data(case, suspect)
    seen, asked = case.facts.value_range(suspect), (change.low, change.high)
    if not any(abs(end) < _CUT_OFF * abs(far) for end, far in zip(asked, seen, strict=True)):
        return _ending(case, suspect, asked, seen)
    whole, cut = (_ending(case, suspect, ends, seen) for ends in (seen, asked))
    return min(whole, cut, key=lambda fixes: case.loss(fixes, more=True).value)


def _ending(case: Case, suspect: Suspect, asked: tuple[float, float], seen: tuple[float, float]) -> Fixes:
    found = {}
    for name in suspect.quantizers:
        member = case.facts.quantizers[name]
        own = tuple(map(float, representable_range(member.params, member.spec))) if _one_scale(member) else seen
        ends = zip(asked, seen, own, strict=True)
        low, high = np.clip([_end(*each) for each in ends], *range_limits(case, suspect)).tolist()
        found[name] = with_range(member, low, high)
    return found


def range_limits(case: Case, suspect: Suspect) -> tuple[float, float]:
    """What no value of a suspect goes beyond, whatever the sample, by the node that makes it."""
    model = case.facts.quantized.float_model
    node = producers(model.proto.graph.node).get(suspect.tensor)
    return (-np.inf, np.inf) if node is None else value_limits(node, Weights(model))


def _one_scale(quantizer: Quantizer) -> bool:
    return bool(quantizer.params.scale.size == 1)


def _end(asked: float, seen: float, own: float) -> float:
    """Where a range ends: at the values and a margin, at most where it ends now if that is wide enough."""
    if abs(asked) < _CUT_OFF * abs(seen):
        return asked
    end = seen * (1 + _MARGIN)
    return own if abs(seen) <= abs(own) < abs(end) and own * seen > 0 else end


def _at_data(case: Case, suspect: Suspect) -> dict[str, Quantizer]:
    """The quantizers of a suspect over the range of its values; slices of a weight keep theirs."""
    members = [case.facts.quantizers[name] for name in suspect.quantizers]
    if suspect.kind == "weight":
        return {each.name: at_its_range(each, case.facts.values(each.tensor)) for each in members}
    if suspect.tensor not in case.facts.observed:
        return {}
    return {each.name: with_range(each, *case.facts.value_range(suspect)) for each in members}


def _per_channel(case: Case, suspect: Suspect, change: RemedyChange) -> Fixes:
    quantizer = case.facts.quantizers[suspect.name]
    axis = case.facts.channel_axis(quantizer)
    if axis is None or (change.axis is not None and change.axis != axis):
        return {}
    values = case.facts.values(quantizer.tensor)
    axes = tuple(at for at in range(values.ndim) if at != axis)
    return {quantizer.name: with_slice_ranges(quantizer, axis, values.min(axis=axes), values.max(axis=axes))}


def retied(case: Case, fixes: Fixes) -> Fixes:
    """The fixes, with biases that follow: integers add biases at the product of the scales of input and weight."""
    before = Edges(case.facts.quantized.float_model, case.facts.quantized.quantizers)
    found = dict(fixes)
    for node in case.facts.quantized.float_model.proto.graph.node:
        read = [before.read_by(node.name, at) for at in range(min(len(node.input), _BIAS_INPUT + 1))]
        if len(read) <= _BIAS_INPUT or any(each is None for each in read):
            continue
        source, weight, bias = (each for each in read if each is not None)
        if bias.kind != "bias" or bias.name in fixes or not _touched((source, weight), fixes):
            continue
        if _product(source, weight).shape == bias.params.scale.shape and np.allclose(
            _product(source, weight), bias.params.scale, rtol=_SAME_SCALE
        ):
            found[bias.name] = _tied(bias, found.get(source.name, source), found.get(weight.name, weight))
    return found


def _touched(quantizers: Iterable[Quantizer], fixes: Fixes) -> bool:
    return any(each.name in fixes for each in quantizers)


def _product(source: Quantizer, weight: Quantizer) -> Array:
    return np.asarray(source.params.scale * weight.params.scale, dtype=np.float32)


def _tied(bias: Quantizer, source: Quantizer | None, weight: Quantizer | None) -> Quantizer | None:
    """A bias at the new product of scales; in float where there is none. What its codes say stays."""
    if source is None or weight is None:
        return None
    scale = _product(source, weight)
    params = QuantParams(scale, np.zeros(scale.shape, dtype=np.int64))
    spec, codes = bias.spec.along(0 if scale.ndim else None), bias.codes
    if codes is not None:
        codes = quantize(dequantize(codes, bias.params, bias.spec.axis), params, spec)
    return replace(bias, params=params, spec=spec, codes=codes)


# What costs a chip nothing: channels made alike before quantization, ranges found again, biases corrected.

_EQUALIZE = Step("equalize", options=(("clip", "observed"),))  # a Clip that is split adds a node
_CORRECT = Step(BIAS_CORRECTION)
_PER_CHANNEL_TARGET, _PER_TENSOR_TARGET = "generic-int8", "generic-int8-per-tensor"
# Ends of a tensor's values that differ by less are the same: a network that computes the same does so in float32.
_SAME_END = 1e-4


def like_target(quantized: QuantizedModel) -> Target:
    """A chip that has the scales of a model which another tool made: by channel, or one for each weight."""
    sliced = any(each.kind == "weight" and each.params.scale.size > 1 for each in quantized.quantizers)
    return load_target(_PER_CHANNEL_TARGET if sliced else _PER_TENSOR_TARGET)


def free_levers(case: Case, *, threads: int | None = None) -> list[tuple[tuple[str, ...], Loss]]:
    """What is lost with levers that cost a chip nothing, by what they are called, where they change anything.

    Each half of the samples is measured with what was fitted to the other one, ranges among it.

    Args:
        case: The network, with all put right that is to be.
        threads: Threads to use.

    Raises:
        RoundoffError: A lever does not get along with the network.
    """
    halves, meters = case.runner.halves(), dict[tuple[str, ...], LossMeter]()
    for fitted, shown in (halves, halves[::-1]):
        for names, runner, quantizers in _fitted_levers(case, fitted, threads=threads):
            meter = meters.setdefault(names, LossMeter(runner.parts))
            for exact, found in runner.pairs(quantizers, shown, fused=can_fuse(quantizers)):
                meter.add(exact, found)
    losses = ((names, meter.loss()) for names, meter in meters.items())
    # One that changes nothing when it is fitted to the other half is measured on some samples only.
    return [each for each in losses if len(each[1].sums) == len(case.runner.indices)]


def _fitted_levers(
    case: Case, places: Sequence[int], *, threads: int | None
) -> Iterator[tuple[tuple[str, ...], InterventionRunner, Sequence[Quantizer]]]:
    """Levers that are fitted to some of the samples: their names, and the network with them."""
    case = case.mend(refitted(case, case.mended, places))
    given = replace(case.facts.quantized, quantizers=tuple(case.quantizers()))
    runner, used = case.runner, list[str]()
    samples = Subset(runner.samples, tuple(runner.indices[place] for place in places))
    context = StepContext(like_target(given), samples, threads=threads)
    alike = equalized(case, _EQUALIZE, context, places=places)
    if alike is not None:
        used.append(_EQUALIZE.name)
        given, runner = alike.facts.quantized, alike.runner
        yield tuple(used), runner, given.quantizers
    done = apply_correction(_CORRECT, given, context)
    if done.taken:
        yield (*used, _CORRECT.name), runner, done.model.quantizers


def corrected(quantized: QuantizedModel, samples: Samples, *, threads: int | None = None) -> QuantizedModel:
    """A network whose biases are corrected on some samples, whatever they were corrected on before.

    Raises:
        RoundoffError: The correction does not get along with the network.
    """
    return apply_correction(
        _CORRECT, quantized, StepContext(like_target(quantized), samples, threads=threads)
    ).model


def equalized(case: Case, step: Step, context: StepContext, places: Sequence[int] | None = None) -> Case | None:
    """A network with channels made alike; ranges are found again where values changed, the others stay.

    Args:
        case: The network.
        step: The transform.
        context: What it works with.
        places: The samples that ranges are found on, where nothing else is asked of the network; all of them by
            default.

    Returns:
        The network, opened on the same samples; None where nothing changes.

    Raises:
        RoundoffError: The transform does not get along with the network.
    """
    given = replace(case.facts.quantized, quantizers=tuple(case.quantizers()))
    alike = TRANSFORMS.apply(step, given.float_model, context)
    if not alike.taken:
        return None
    made = replace(given, float_model=alike.model)
    try:
        opened = open_case(
            made,
            case.runner.chosen,
            arithmetic=case.facts.arithmetic,
            threads=context.threads,
            most=len(case.runner.indices),
            ranges_only=places is not None,
            places=places,
        )
    except RoundoffError:
        return None
    # Both float networks ran: whether the transform changed what is computed on its own samples is known already.
    both = list(zip(case.runner.float_outputs(), opened.runner.float_outputs(), strict=False))
    fitted = both if places is None else [both[place] for place in places if place < len(both)]
    if not compare_outputs(given.float_model, fitted).agrees:
        return None
    moved = [suspect for suspect in opened.facts.suspects if _moved(case, opened, suspect, places)]
    # Codes that the file has for constants are those of other values.
    known = opened.facts.quantizers
    stale = {name for each in moved if each.kind != "activation" for name in each.quantizers}
    fresh = tuple(replace(each, codes=None) if each.name in stale else each for each in known.values())
    opened = replace(opened, facts=opened.facts.of(fresh))
    ranges = {name: each for suspect in moved for name, each in _at_data(opened, suspect).items()}
    return replace(opened, facts=opened.facts.of(tuple(opened.quantizers(retied(opened, ranges)))))


def _moved(before: Case, after: Case, suspect: Suspect, places: Sequence[int] | None) -> bool:
    """Whether a transform changed the values of a suspect: those of a constant, or how far others reach.

    Args:
        before: The network as it was, in all samples.
        after: The network with the transform, in those that it was fitted to.
        suspect: The suspect.
        places: These samples; all by default.
    """
    tensor = suspect.tensor
    if tensor in after.facts.weights:
        known = tensor in before.facts.weights
        return not known or not np.array_equal(before.facts.values(tensor), after.facts.values(tensor))
    ours, theirs = before.facts.tensor_range(tensor, places), after.facts.tensor_range(tensor)
    return ours is None or theirs is None or not np.allclose(ours, theirs, rtol=_SAME_END, atol=0.0)


_WIDE = 16
_EXACT_RANGE = "minmax"


@dataclass(frozen=True, eq=False)
class EditedModel:
    """A quantized model whose quantizers are changed one by one.

    Attributes:
        case: The network as it was given, or with its channels made alike.
        fixes: What is changed.
        corrections: What is corrected behind all changes.
        threads: Threads to use.
    """

    case: Case
    fixes: Fixes = field(default_factory=dict)
    corrections: tuple[Step, ...] = ()
    threads: int | None = None

    def changed(self, changes: Sequence[RemedyChange]) -> Self | None:
        """The same with changes; None where none of them can be made in quantizers."""
        piece = self
        for change in changes:
            piece = piece._with(change) or piece
        return None if piece is self else piece

    def _with(self, change: RemedyChange) -> Self | None:
        step = change.step
        if change.kind == "transform" and step is not None:
            return self._equalized(step)
        if change.kind == "correction" and step is not None:
            if step.name not in correction_names() or step in self.corrections:
                return None
            piece = replace(self, corrections=(*self.corrections, step))
            return piece if piece._made[1] else None
        found = edit(self.case.mend(retied(self.case, self.fixes)), change)
        return replace(self, fixes={**self.fixes, **found}) if found else None

    def _equalized(self, step: Step) -> Self | None:
        if step.name != _EQUALIZE.name:
            return None
        alike = equalized(self.case.mend(retied(self.case, self.fixes)), step, self._context)
        return None if alike is None else replace(self, case=alike, fixes={})

    @property
    def _context(self) -> StepContext:
        given = self.case.facts.quantized
        return StepContext(like_target(given), self.case.runner.chosen, threads=self.threads)

    @cached_property
    def _made(self) -> tuple[QuantizedModel, bool]:
        """The network, and whether its corrections found anything to correct."""
        quantizers = tuple(self.case.quantizers(retied(self.case, self.fixes)))
        made, taken = replace(self.case.facts.quantized, quantizers=quantizers), True
        for step in self.corrections:
            done = apply_correction(step, made, self._context)
            made, taken = done.model, taken and bool(done.taken)
        return made, taken

    def quantized(self) -> QuantizedModel:
        """The network; biases follow the scales of inputs and weights."""
        return self._made[0]


@dataclass(frozen=True, slots=True, eq=False)
class RecipeModel:
    """A model that is quantized for a target, whose recipe is changed.

    Attributes:
        builder: Makes the model.
        recipe: How.
    """

    builder: RecipeBuilder
    recipe: Recipe

    def changed(self, changes: Sequence[RemedyChange]) -> Self | None:
        """The same with changes; None where the target does not have what they ask for."""
        recipe: Recipe | None = self.recipe
        for change in changes:
            recipe = None if recipe is None else self._with(recipe, change)
        if recipe is None or recipe == self.recipe:
            return None
        try:
            self.builder.build(recipe)
        except BadInput:
            return None
        return replace(self, recipe=recipe)

    def _with(self, recipe: Recipe, change: RemedyChange) -> Recipe | None:
        target = self.builder.target
        match change.kind:
            case "variation" | "per_channel":
                name = change.value or PER_CHANNEL
                if name not in self.builder.variations():
                    return None
                return replace(recipe, variations=tuple(sorted({*recipe.variations, name})))
            case "transform" | "correction" if change.step is not None:
                changed = self._transformed if change.kind == "transform" else self._corrected
                return changed(recipe, change.step)
            case "bits" | "float":
                return _with_rules(recipe, change, {**target.activations}, {**target.weights}, self.builder)
            case "range" | "recalibrate":
                return _with_range_method(recipe, change, self.builder)
        return None

    def _transformed(self, recipe: Recipe, step: Step) -> Recipe | None:
        if step.name not in self.builder.library.transforms() or step in recipe.transforms:
            return None
        # The place for corrections of biases is made last.
        ahead = tuple(each for each in recipe.transforms if each.name != EXPLICIT_BIAS)
        last = tuple(each for each in recipe.transforms if each.name == EXPLICIT_BIAS)
        return replace(recipe, transforms=(*ahead, step, *last), tensor_methods=())

    def _corrected(self, recipe: Recipe, step: Step) -> Recipe | None:
        library = self.builder.library
        if step.name not in library.corrections() or step in recipe.corrections:
            return None
        # Corrections of biases have nowhere to go in a layer without one.
        place = Step(EXPLICIT_BIAS)
        needs = step.name == BIAS_CORRECTION and place not in recipe.transforms
        if needs and EXPLICIT_BIAS not in library.transforms():
            return None
        transforms = (*recipe.transforms, place) if needs else recipe.transforms
        return replace(recipe, transforms=transforms, corrections=(*recipe.corrections, step))

    def built(self) -> BuiltModel:
        """The network with its plan."""
        return self.builder.build(self.recipe)

    def quantized(self) -> QuantizedModel:
        """The network."""
        return self.built().quantized


def _with_rules(
    recipe: Recipe,
    change: RemedyChange,
    activations: dict[str, QuantSpec],
    weights: dict[str, QuantSpec],
    builder: RecipeBuilder,
) -> Recipe | None:
    """Other precisions for tensors, where the target has them."""
    constants = {each.name for each in builder.prepared.model.proto.graph.initializer}
    rules = []
    for tensor in change.tensors:
        offered = weights if tensor in constants else activations
        wide = next((dtype for dtype, spec in offered.items() if spec.bits >= _WIDE), "")
        dtype = FLOAT if change.kind == "float" else wide
        if not dtype:
            return None
        rules.append(Rule("tensor", (tensor,), Precision(dtype, "", dtype)))
    return replace(recipe, rules=(*recipe.rules, *rules)) if rules else None


def _with_range_method(recipe: Recipe, change: RemedyChange, builder: RecipeBuilder) -> Recipe | None:
    """Ranges that leave nothing out, for some tensors or all of them."""
    constants = {each.name for each in builder.prepared.model.proto.graph.initializer}
    if not change.tensors:
        return replace(recipe, method=_EXACT_RANGE, tensor_methods=())
    if set(change.tensors) & constants:
        return replace(recipe, weight_method=_EXACT_RANGE)
    methods = {**dict(recipe.tensor_methods), **dict.fromkeys(change.tensors, _EXACT_RANGE)}
    return replace(recipe, tensor_methods=tuple(sorted(methods.items())))
