"""Requested against effective precision: of one model, or of a run with its plan."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from roundoff.core.plan import FLOAT, NodePlan, PlannedQuantizer, Precision, QuantPlan, Resolution
from roundoff.core.quantizers import Consumer, Quantizer, QuantParams, quantize
from roundoff.core.tensors import Array
from roundoff.graph.block_weights import block_products
from roundoff.graph.nodes import producer_names
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.weights import Weights
from roundoff.messages.message import Translatable, english, listed
from roundoff.messages.numbers import share_text
from roundoff.studies.audit.checks import EffectiveView, Findings, check_numbers, check_structure
from roundoff.studies.audit.result import RUN_PLAN, Audit, AuditFinding, AuditRow

_NOUNS = {"activation": "input", "weight": "weight", "output": "output"}


def audit_model(model: QuantizedModel, *, subject: str) -> Audit:
    """What a model has that somebody else made, and what in it is not as it should be.

    Args:
        model: The model, as it was read.
        subject: What the user calls it.
    """
    view = EffectiveView(model)
    found = _merged(check_structure(view), check_numbers(model.float_model, model.quantizers), _oddities(view))
    return _audit(subject, "", view, found)


def audit_against(model: QuantizedModel, plan: QuantPlan, *, subject: str) -> Audit:
    """Like `audit_model`, with the plan of a target as the request.

    Args:
        model: The model, as it was read.
        plan: What the target would do with its float model.
        subject: What the user calls it.
    """
    view = EffectiveView(model)
    plans = {node.node: node for node in plan.nodes}
    found: list[Findings] = [compare_edges(plan, view), {node.node: _explained(node) for node in plan.nodes}]
    found += [check_numbers(model.float_model, model.quantizers), _oddities(view)]
    return _audit(subject, english("target {target}", target=plan.target), view, _merged(*found), plans=plans)


def audit_run(
    plan: QuantPlan,
    planned: Sequence[Quantizer],
    models: Mapping[str, QuantizedModel],
    *,
    subject: str,
    corrected: bool = False,
) -> Audit:
    """Whether the models of a run have what its plan says, and the plan what was asked for.

    Args:
        plan: What was asked for, and what was decided.
        planned: The quantizers of the plan with their numbers.
        models: The models that were written, as they were read, by what they are called in sentences.
        subject: What the user calls the run.
        corrected: Whether codes were corrected after the plan was made.
    """
    first = next(iter(models.values()))
    view = EffectiveView(first)
    plans = {node.node: node for node in plan.nodes}
    found: list[Findings] = [
        compare_with_plan(planned, model, file=name, corrected=corrected) for name, model in models.items()
    ]
    found.append({node.node: _explained(node) for node in plan.nodes})
    found.append(check_numbers(first.float_model, first.quantizers))
    found += [_oddities(EffectiveView(model)) for model in models.values()]
    if len(models) > 1:
        found.append(compare_codes(*list(models.values())[:2]))
    rules = tuple(finding for resolution in plan.resolutions for finding in _resolved(resolution))
    return _audit(subject, RUN_PLAN, view, _merged(*found), plans=plans, more=rules)


def _explained(node: NodePlan) -> list[AuditFinding]:
    """Where a plan itself is not what was asked for."""
    if node.requested == node.effective:
        return []
    asked, made = _text(node.requested), _text(node.effective)
    text = english("asked for {asked}, the plan has {made}", asked=asked, made=made)
    if node.reason:
        return [
            AuditFinding(
                "request", "explained", english("{what}: {why}", what=text, why=Translatable(node.reason))
            )
        ]
    return [AuditFinding("request", "silent", text)]


def _text(precision: Precision) -> str:
    parts = ((noun, getattr(precision, part)) for part, noun in _NOUNS.items())
    return ", ".join(f"{noun} {dtype}" for noun, dtype in parts if dtype) or english("nothing")


@dataclass(frozen=True, slots=True)
class _Home:
    """Finds the node that something is about."""

    view: EffectiveView

    def of(self, name: str) -> str:
        """The node of that name, the one that computes the tensor of that name, or one that reads it."""
        if name in self.view.by_name:
            return name
        producer = self.view.producer(name)
        if producer is not None:
            return str(producer.name)
        readers = (node.name for node in self.view.nodes if name in node.input)
        return str(next(readers, name))


def _oddities(view: EffectiveView) -> Findings:
    """What the reader of a model could not say with quantizers."""
    found: dict[str, list[AuditFinding]] = defaultdict(list)
    home = _Home(view)
    for oddity in view.model.oddities:
        if oddity.kind == "disagreement":
            found[home.of(oddity.node)].append(AuditFinding("disagreement", "silent", Translatable(oddity.text)))
        elif oddity.kind in ("dynamic", "not_represented"):
            found[home.of(oddity.node)].append(AuditFinding(oddity.kind, "info", Translatable(oddity.text)))
    return found


def _resolved(resolution: Resolution) -> Iterable[AuditFinding]:
    """Rules that named nothing, or had no effect and no reason."""
    rule = ", ".join(resolution.rule.selector)
    if not resolution.matched:
        yield AuditFinding("rule", "silent", english("the rule for {rule!r} matches no node", rule=rule))
    unexplained = [
        node for node in resolution.matched if node not in resolution.applied and not resolution.reasons.get(node)
    ]
    if unexplained:
        text = english(
            "the rule for {rule!r} has no effect on {nodes}, and no reason is on record",
            rule=rule,
            nodes=", ".join(unexplained[:5]),
        )
        yield AuditFinding("rule", "silent", text)


def _merged(*parts: Findings) -> dict[str, list[AuditFinding]]:
    merged: dict[str, list[AuditFinding]] = defaultdict(list)
    for part in parts:
        for node, found in part.items():
            merged[node] += [finding for finding in found if finding not in merged[node]]
    return merged


def _audit(
    subject: str,
    request: str,
    view: EffectiveView,
    findings: Findings,
    *,
    plans: Mapping[str, NodePlan] | None = None,
    more: tuple[AuditFinding, ...] = (),
) -> Audit:
    known = plans or {}
    rows = []
    blocks = block_products(view.model.float_model)
    for node in view.nodes:
        plan, own = known.get(node.name), tuple(findings.get(node.name, ()))
        rows.append(
            AuditRow(
                node=node.name,
                op_type=node.op_type,
                requested=Precision() if plan is None else plan.requested,
                effective=view.effective(node),
                reason="" if plan is None or not plan.reason else Translatable(plan.reason),
                parts=view.parts(node),
                findings=own,
                float_between_integers=plan is not None and plan.float_between_integers,
                block=blocks[node.name].size if node.name in blocks else 0,
            )
        )
    names = {row.node for row in rows}
    homeless = [finding for node, found in findings.items() if node not in names for finding in found]
    return Audit(subject, request, tuple(rows), (*more, *homeless), tuple(map(str, view.model.notes)))


_HOW = {
    "granularity": english("of another granularity"),
    "scale": english("with another scale"),
    "zero_point": english("with another zero point"),
    "rounding": english("rounded otherwise"),
    "place": english("seen by other nodes"),
    "tensor": english("of another tensor"),
}
_KIND_NOUNS = {"activation": english("tensor"), "weight": english("weight"), "bias": english("bias")}
_STORED_BITS = (4, 8, 16, 32)


def compare_with_plan(
    planned: Sequence[Quantizer], model: QuantizedModel, *, file: str, corrected: bool = False
) -> Findings:
    """What differs between a plan and a model, by node; silently, because a plan says what it wants differently.

    Args:
        planned: The quantizers of the plan, with their numbers.
        model: What the file holds.
        file: What the file is called in sentences.
        corrected: Whether codes were corrected after the plan was made: a bias that it leaves in float is then
            held as integers of 32 bits, which is no loss.
    """
    findings: Findings = defaultdict(list)
    producers = producer_names(model.float_model.proto.graph.node)
    partners = _partners(planned, model.quantizers)
    tensors = {quantizer.tensor for quantizer in planned}
    for wanted in planned:
        found = partners.get(wanted.name)
        if found is None:
            text = english(
                "{file}: {what} should be {dtype} and is not quantized",
                file=file,
                what=_what(wanted),
                dtype=wanted.spec.dtype,
            )
            finding = AuditFinding("missing", "silent", text, _noun(wanted), english("float instead of quantized"))
            _blame(findings, wanted, producers, finding)
            continue
        for kind, text in _differences(wanted, found, tensors):
            how = _HOW.get(
                kind, english("{got} instead of {asked}", got=found.spec.dtype, asked=wanted.spec.dtype)
            )
            finding = AuditFinding(
                kind,
                "silent",
                english("{file}: {what} {text}", file=file, what=_what(wanted), text=text),
                _noun(wanted),
                how,
            )
            _blame(findings, wanted, producers, finding)
    matched = {found.name for found in partners.values()}
    for extra in model.quantizers:
        if extra.name in matched:
            continue
        if corrected and is_wide_bias(extra):
            text = english(
                "{file}: {what} was corrected, and is held as {dtype} instead of float",
                file=file,
                what=_what(extra),
                dtype=extra.spec.dtype,
            )
            _blame(
                findings,
                extra,
                producers,
                AuditFinding("corrected", "explained", text, "bias", english("corrected")),
            )
        else:
            text = english(
                "{file}: {what} is quantized to {dtype}, which the plan does not ask for",
                file=file,
                what=_what(extra),
                dtype=extra.spec.dtype,
            )
            finding = AuditFinding("extra", "silent", text, _noun(extra), english("quantized though not planned"))
            _blame(findings, extra, producers, finding)
    return dict(findings)


def is_wide_bias(quantizer: Quantizer) -> bool:
    """Whether it holds a bias in integers of 32 bits: what it adds is exact to a step of the sums."""
    return quantizer.kind == "bias" and quantizer.spec.bits >= _STORED_BITS[-1]


def _partners(planned: Sequence[Quantizer], found: Sequence[Quantizer]) -> dict[str, Quantizer]:
    """For each planned quantizer the one in the model: of the same name, or at the same place."""
    by_name = {quantizer.name: quantizer for quantizer in found}
    partners = {wanted.name: by_name[wanted.name] for wanted in planned if wanted.name in by_name}
    taken = {quantizer.name for quantizer in partners.values()}
    by_place = {_place(quantizer): quantizer for quantizer in found if quantizer.name not in taken}
    for wanted in planned:
        if wanted.name not in partners and _place(wanted) in by_place:
            partners[wanted.name] = by_place[_place(wanted)]
    return partners


def _place(quantizer: Quantizer) -> tuple[frozenset[Consumer], bool, str]:
    return frozenset(quantizer.consumers), quantizer.output, quantizer.kind


def _what(quantizer: Quantizer) -> str:
    return english("{noun} {tensor!r}", noun=_KIND_NOUNS[quantizer.kind], tensor=quantizer.tensor)


def _noun(quantizer: Quantizer) -> str:
    return "tensor" if quantizer.kind == "activation" else quantizer.kind


def _differences(wanted: Quantizer, found: Quantizer, tensors: Collection[str]) -> Iterator[tuple[str, str]]:
    # Where others read a constant in float, that has its name, and the values of the codes have a new one.
    renamed = wanted.kind != "activation" and found.tensor not in tensors
    if wanted.tensor != found.tensor and not renamed:
        yield (
            "tensor",
            english(
                "is what {name!r} should quantize, and it quantizes {tensor!r}",
                name=wanted.name,
                tensor=found.tensor,
            ),
        )
    if not _same_form(wanted, found):
        yield (
            "dtype",
            english("should be {dtype} and is {dtype2}", dtype=wanted.spec.dtype, dtype2=found.spec.dtype),
        )
    if _slices(wanted) != _slices(found):
        yield (
            "granularity",
            english(
                "should be {granularity} and is {granularity2}",
                granularity=_granularity(wanted),
                granularity2=_granularity(found),
            ),
        )
        return
    if not _same(wanted.params.scale, found.params.scale):
        yield (
            "scale",
            english(
                "should have {numbers}, and has {numbers2}",
                numbers=_numbers(wanted.params.scale),
                numbers2=_numbers(found.params.scale),
            ),
        )
    if not _same(wanted.params.zero_point, found.params.zero_point):
        asked, got = wanted.params.zero_point, found.params.zero_point
        yield (
            "zero_point",
            english(
                "should have the zero point {range} and has {range2}", range=_range(asked), range2=_range(got)
            ),
        )
    if wanted.spec.rounding != found.spec.rounding and wanted.kind == "activation":
        yield (
            "rounding",
            english(
                "should be rounded {rounding} and is rounded {rounding2}",
                rounding=wanted.spec.rounding,
                rounding2=found.spec.rounding,
            ),
        )
    if set(wanted.consumers) != set(found.consumers) or wanted.output != found.output:
        yield (
            "place",
            english(
                "should be seen by {readers} and is seen by {readers2}",
                readers=_readers(wanted),
                readers2=_readers(found),
            ),
        )


def _same(one: Array, two: Array) -> bool:
    return np.array_equal(one.ravel(), two.ravel())


def _same_form(wanted: Quantizer, found: Quantizer) -> bool:
    ours, theirs = wanted.spec, found.spec
    if (ours.bits, ours.signed) == (theirs.bits, theirs.signed):
        return True
    # A constant of codes that no element type has is kept in the next wider one.
    stored = next((bits for bits in _STORED_BITS if bits >= ours.bits), 0)
    return wanted.kind != "activation" and (stored, ours.signed) == (theirs.bits, theirs.signed)


def _slices(quantizer: Quantizer) -> tuple[int | None, int]:
    """The axis of the slices with a scale of their own, and how many there are; a single one is the whole."""
    count = int(quantizer.params.scale.size)
    return (None if count == 1 else quantizer.spec.axis), count


def _granularity(quantizer: Quantizer) -> str:
    axis, count = _slices(quantizer)
    return (
        "per tensor"
        if axis is None
        else english("per channel (axis {axis}, {count} scales)", axis=axis, count=count)
    )


def _numbers(scale: Array) -> str:
    if scale.size == 1:
        return english("the scale {number:.9g}", number=float(scale.ravel()[0]))
    return english("{size} scales from {min:.6g} to {max:.6g}", size=scale.size, min=scale.min(), max=scale.max())


def _range(numbers: Array) -> str:
    low, high = int(numbers.min()), int(numbers.max())
    return str(low) if low == high else english("{low} to {high}", low=low, high=high)


def _readers(quantizer: Quantizer) -> str:
    names = [
        english("input {input} of {node}", input=edge.input, node=edge.node)
        for edge in sorted(quantizer.consumers)
    ]
    names += [english("the output")] if quantizer.output else []
    return listed(names or [english("nothing")])


def _blame(findings: Findings, quantizer: Quantizer, producers: Mapping[str, str], finding: AuditFinding) -> None:
    """Put a finding on the nodes that see a tensor; on the one that computes it when none does."""
    nodes = dict.fromkeys(edge.node for edge in quantizer.consumers)
    for node in nodes or [producers.get(quantizer.tensor, quantizer.tensor)]:
        findings[node].append(finding)


def compare_codes(fake_quant: QuantizedModel, deploy: QuantizedModel) -> Findings:
    """Whether the integers that a deployed model holds are those that the simulated one computes."""
    findings: Findings = defaultdict(list)
    simulated = {quantizer.name: quantizer for quantizer in fake_quant.quantizers}
    floats, values = Weights(fake_quant.float_model), Weights(deploy.float_model)
    for quantizer in deploy.quantizers:
        partner = simulated.get(quantizer.name)
        if quantizer.kind == "activation" or partner is None or partner.tensor not in floats:
            continue
        ours = _codes(quantizer, values[quantizer.tensor])
        theirs = _codes(partner, floats[partner.tensor])
        if ours.shape != theirs.shape or not np.array_equal(ours, theirs):
            apart = (
                english("shape")
                if ours.shape != theirs.shape
                else english("{share} of its codes", share=share_text(float(np.mean(ours != theirs))))
            )
            text = english("{what} differs between the two models: {apart}", what=_what(partner), apart=apart)
            finding = AuditFinding(
                "codes", "silent", text, _noun(quantizer), english("with other codes in one model")
            )
            _blame(findings, quantizer, {}, finding)
    return dict(findings)


def _codes(quantizer: Quantizer, values: Array) -> Array:
    if quantizer.codes is not None:
        return quantizer.codes.astype(np.int64)
    return quantize(values.astype(np.float32, copy=False), quantizer.params, quantizer.spec).astype(np.int64)


# Whether a model that somebody else made is quantized where, and how, a target would do it.


def compare_edges(plan: QuantPlan, view: EffectiveView) -> Findings:
    """What differs between a plan and a model at each input of each node, and at the outputs of the network.

    Names of quantizers and their number do not matter, nor do scales; only what reaches a node.
    """
    findings: Findings = defaultdict(list)
    model = view.model.float_model
    planned = EffectiveView(QuantizedModel(model, tuple(map(_without_numbers, plan.quantizers))))
    who = english("target {target}", target=plan.target)
    for node in view.nodes:
        for at, name in enumerate(node.input):
            wanted, found = planned.seen_at(node, at), view.seen_at(node, at)
            if wanted is not None or found is not None:
                place = _QuantizerPlace(
                    _noun_against_target(wanted, found), english("input {at} ({name})", at=at, name=name), who
                )
                differences = _differences_against_target(wanted, found, place)
                single = wanted is not None and _is_single(wanted, found, view)
                findings[node.name] += [
                    each for each in differences if not (single and each.kind == "granularity")
                ]
        for name in node.output:
            wanted, found = _leaving(planned, name), _leaving(view, name)
            if wanted is not None or found is not None:
                findings[node.name] += _differences_against_target(
                    wanted, found, _QuantizerPlace("output", english("output {name}", name=name), who)
                )
    return {node: found for node, found in findings.items() if found}


def _is_single(wanted: Quantizer, found: Quantizer | None, view: EffectiveView) -> bool:
    """Whether one scale and one per slice are the same, because there is a single slice."""
    if found is None or found.params.scale.size != 1:
        return False
    axes = (wanted.spec.axis, found.spec.axis)
    return all(axis is None or view.has_one_slice(found.tensor, axis) for axis in axes)


def _without_numbers(planned: PlannedQuantizer) -> Quantizer:
    """A planned quantizer with numbers that mean nothing."""
    shape = () if planned.spec.axis is None else (1,)
    return Quantizer(
        name=planned.name,
        tensor=planned.tensor,
        kind=planned.kind,
        spec=planned.spec,
        params=QuantParams(np.ones(shape, np.float32), np.zeros(shape, np.int64)),
        consumers=planned.consumers,
        output=planned.output,
        after=planned.after,
    )


def _leaving(view: EffectiveView, tensor: str) -> Quantizer | None:
    return next((quantizer for quantizer in view.of_tensor(tensor) if quantizer.output), None)


@dataclass(frozen=True, slots=True)
class _QuantizerPlace:
    """An input or output of a node.

    Attributes:
        noun: What it is to the node.
        name: How it is called in sentences.
        who: Who wants it otherwise.
    """

    noun: str
    name: str
    who: str

    def finding(self, kind: str, got: str, asked: str, how: str) -> AuditFinding:
        text = english("{name} {got}; {who} makes it {asked}", name=self.name, got=got, who=self.who, asked=asked)
        return AuditFinding(kind, "silent", text, self.noun, how)


def _noun_against_target(wanted: Quantizer | None, found: Quantizer | None) -> str:
    known = wanted or found
    return "input" if known is None or known.kind == "activation" else known.kind


def _differences_against_target(
    wanted: Quantizer | None, found: Quantizer | None, place: _QuantizerPlace
) -> Iterator[AuditFinding]:
    if wanted is None and found is not None and is_wide_bias(found):
        # As integer hardware adds it, or as corrections leave it: no precision is lost by it.
        text = english(
            "{name} is {dtype}; {who} makes it float, which adds the same",
            name=place.name,
            dtype=found.spec.dtype,
            who=place.who,
        )
        yield AuditFinding("integer_bias", "info", text, place.noun, english("in integers instead of float"))
        return
    if wanted is None or found is None or wanted.spec.dtype != found.spec.dtype:
        asked, got = (FLOAT if each is None else each.spec.dtype for each in (wanted, found))
        yield place.finding(
            "dtype", english("is {got}", got=got), asked, english("{got} instead of {asked}", got=got, asked=asked)
        )
        return
    if wanted.spec.axis != _axis(found):
        asked, got = _slices_against_target(wanted.spec.axis), _slices_against_target(_axis(found))
        how = english("sliced along another axis")
        if None in (wanted.spec.axis, _axis(found)):
            per = {True: english("per tensor"), False: english("per channel")}
            short = [per[axis is None] for axis in (_axis(found), wanted.spec.axis)]
            how = english("{got} instead of {asked}", got=short[0], asked=short[1])
        yield place.finding("granularity", english("is {got}", got=got), asked, how)
    if wanted.spec.symmetric and not found.spec.symmetric and not _is_one_sided(wanted, found):
        yield place.finding(
            "symmetry", english("has a zero point of its own"), english("symmetric"), english("not symmetric")
        )


def _is_one_sided(wanted: Quantizer, found: Quantizer) -> bool:
    """Whether all codes are for what is not negative, as a symmetric quantizer of some chips has it."""
    lowest = np.asarray(found.params.zero_point) == found.spec.code_min
    return wanted.spec.symmetric_scale == "one_sided" and bool(lowest.all())


def _axis(quantizer: Quantizer) -> Any:
    return quantizer.spec.axis if quantizer.params.scale.ndim else None


def _slices_against_target(axis: int | None) -> str:
    return english("per tensor") if axis is None else english("per channel (axis {axis})", axis=axis)
