"""A quantization: how outputs agree, what became of every request, what stayed in float."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from roundoff.core.plan import FLOAT, QuantPlan, Resolution, rule_text
from roundoff.core.quantizers import QuantSpec
from roundoff.core.target import Target
from roundoff.measure.metrics import OutputAgreement
from roundoff.measure.verdicts import ThresholdSet
from roundoff.messages.catalogue import (
    Phrase,
    bilingual,
    commas,
    count_of,
    current_language,
    few,
    in_all_languages,
    plain,
    semicolons,
    translate,
)
from roundoff.messages.message import Message, phrase_of, shown
from roundoff.messages.numbers import decibels_with_unit, percent_digits, percent_number, score_text
from roundoff.pages.blocks import (
    Block,
    Column,
    Facts,
    Headline,
    Page,
    Paragraph,
    Place,
    TableBlock,
    Tone,
    bilingual_facts,
    notes,
)
from roundoff.pages.coverage import judgement_lines
from roundoff.quantize.pipeline import Quantization

if TYPE_CHECKING:
    from roundoff.measure.tokens import TokenScores

_LISTED = 4
_TONES: dict[str, Tone] = {"fine": "good", "lossy": "bad"}
_METHODS = (
    Column("method", bilingual("quantize.column_method"), "text"),
    Column("outputs", bilingual("quantize.column_outputs"), "text"),
    Column("taken", plain(""), "text"),
)
_RULES = (
    Column("rule", bilingual("quantize.column_rule"), "text"),
    Column("nodes", bilingual("quantize.nodes"), "count"),
    Column("applied", bilingual("quantize.column_applied"), "count"),
    Column("why", bilingual("quantize.column_why"), "text"),
)
# A terminal says in lines what nodes became.
_KEPT: tuple[Place, ...] = ("html", "csv")
_NODES = (
    Column("node", bilingual("common.node"), "node", on=_KEPT),
    Column("op_type", bilingual("common.operation"), "text", on=_KEPT),
    *(Column(name, plain(name), "text", on=_KEPT) for name in ("unit", "activation", "weight", "reason")),
)


def quantization_page(
    result: Quantization, limits: ThresholdSet, *, model: str, advice: Phrase | None = None
) -> Page:
    """Whether outputs agree with those of the float model, what is quantized, and what every node became.

    Args:
        result: The quantization.
        limits: What outputs must keep to be called fine.
        model: What the model is called.
        advice: What to type next when they do not.
    """
    agreements, plan, best = result.best.agreement, result.best.plan, result.best.judged
    judgement = None if best is None else best.judgement
    kind = "not_judged" if judgement is None else judgement.grade
    title = bilingual(
        "quantize.title",
        model=model,
        target=result.target.name,
        method=result.best.method,
        samples=in_all_languages(lambda: _calibrated(result)),
    )
    word = bilingual(f"quantize.word_{kind}")
    headline = Headline(_TONES.get(kind, "open"), bilingual("quantize.titled", title=title), word=word)

    def lines() -> Iterator[tuple[str, str]]:
        for index, agreement in enumerate(agreements):
            yield "" if index else translate("quantize.output"), agreement_line(agreement)
        for part in () if best is None else best.parts:
            # A slice that keeps the limits is told by its output.
            if part.score.values and not limits.holds(part.score.values):
                yield "", agreement_line(part)
        yield from _tokens_lines(None if best is None else best.tokens)
        judged_by = translate("quantize.no_numbers") if agreements else translate("quantize.no_samples")
        if judgement is not None and judgement.coverage.outputs.judged and judgement.coverage.samples is not None:
            samples = count_of(judgement.coverage.samples.judged, "sample")
            judged_by = translate("quantize.against_float", samples=samples, limits=limits.describe())
        yield translate("quantize.judged"), judged_by
        yield from judgement_lines(judgement)
        for index, line in enumerate(_plan_lines(plan)):
            yield "" if index else translate("quantize.nodes"), line
        nothing_judged = judgement is not None and not judgement.coverage.outputs.judged
        if advice is not None and kind != "fine" and not nothing_judged:
            yield translate("quantize.next"), advice.within(current_language())

    rows = tuple(
        (each.node, each.op_type, each.unit, each.seen.activation, each.seen.weight, phrase_of(each.reason))
        for each in plan.nodes
    )
    nodes = TableBlock("nodes", bilingual("quantize.nodes"), _NODES, rows)
    blocks: list[Block] = [headline, bilingual_facts(lines), nodes]
    if len(result.trials) > 1:
        methods = tuple(
            (
                trial.method,
                in_all_languages(lambda trial=trial: "; ".join(map(agreement_line, trial.agreement))),  # type: ignore[misc]
                _mark(trial.method, result.best.method),
            )
            for trial in result.trials
        )
        blocks.append(TableBlock("methods", bilingual("quantize.methods"), _METHODS, methods))
    if plan.resolutions:
        rules = tuple(map(_resolution, plan.resolutions))
        blocks.append(TableBlock("rules", bilingual("quantize.rules"), _RULES, rules))
    return Page("quantization", plain("quantization"), (*blocks, *notes(result.notes)))


def _mark(method: str, taken: str) -> Phrase:
    return bilingual("quantize.taken") if method == taken else plain("")


def _resolution(resolution: Resolution) -> tuple[str, int, int, Phrase]:
    """What became of a rule: how many nodes it named, how many have what it asked for, and why others not."""
    why: dict[Message, list[str]] = {}
    for node, reason in (*resolution.reasons.items(), *resolution.remarks.items()):
        why.setdefault(reason, []).append(node)
    text = in_all_languages(
        lambda: semicolons(
            *(
                translate("quantize.said", name=few(nodes, _LISTED), text=shown(reason))
                for reason, nodes in why.items()
            )
        )
    )
    return rule_text(resolution.rule), len(resolution.matched), len(resolution.applied), text


def _calibrated(result: Quantization) -> str:
    """On how many samples ranges were observed; of those that hold NaN only what is finite was."""
    text, judged = count_of(result.calibration.samples, "sample"), result.best.judged
    doubts = () if judged is None else judged.judgement.doubts
    broken = sum(each.count for each in doubts if each.kind == "nonfinite_inputs")
    return translate("quantize.in_part", samples=text, count=broken) if broken else text


def agreement_line(agreement: OutputAgreement) -> str:
    """One output in words: ``prob: cosine 0.9987, SQNR 25.3 dB, top-1 agreement 99.0 %``."""
    values = agreement.score.values
    if not values:
        return translate("quantize.said", name=agreement.output, text=agreement.score.detail)
    if "equal_share" in values and "cosine" not in values:
        text = translate("quantize.same_indices", share=percent_digits(values["equal_share"], 1))
        return translate("quantize.said", name=agreement.output, text=text)
    cosine, sqnr = score_text("cosine", values["cosine"]), decibels_with_unit(values["sqnr_db"])
    text = translate("quantize.agreement", cosine=cosine, db=sqnr)
    if agreement.same_top1 is not None:
        text = commas(text, translate("quantize.same_top", share=percent_digits(agreement.same_top1, 1)))
    text = commas(text, agreement.score.detail)
    return translate("quantize.said", name=agreement.output, text=text)


def _tokens_lines(tokens: "TokenScores | None") -> Iterator[tuple[str, str]]:
    if tokens is None:
        return
    said = translate(
        "quantize.tokens_said",
        before=f"{tokens.nll_float:.4f}",
        after=f"{tokens.nll:.4f}",
        percent="-+"[tokens.worse >= 0] + percent_number(abs(tokens.worse)),
        divergence=f"{tokens.divergence:.3g}",
        same=percent_digits(tokens.same_top1, 1),
        first=f"{tokens.first_other:g}",
        count=tokens.tokens,
    )
    yield translate("quantize.tokens"), said


def _plan_lines(plan: QuantPlan) -> Iterator[str]:
    """What is quantized and what is not, in a few lines."""
    left = [node for node in plan.nodes if node.in_float]
    kinds = Counter(each.kind for each in plan.quantizers)
    held = Counter(node.op_type for node in left if node.seen.weight not in ("", FLOAT))
    if held and not kinds["activation"]:
        # What computes in float is the point of such a target, and is not listed.
        dtypes = sorted({node.seen.weight for node in left} - {"", FLOAT})
        for op_type, count in held.items():
            among = sum(node.op_type == op_type for node in plan.nodes)
            yield translate("quantize.held", count=count, all=among, op=op_type, dtypes=", ".join(dtypes))
        return
    yield translate(
        "quantize.placed",
        count=len(plan.nodes) - len(left),
        all=len(plan.nodes),
        activations=kinds["activation"],
        weights=kinds["weight"],
        biases=kinds["bias"],
    )
    by_type = Counter(node.op_type for node in left)
    if by_type:
        types = ", ".join(f"{count} {op_type}" for op_type, count in by_type.most_common(_LISTED))
        if len(by_type) > _LISTED:
            types = translate("quantize.more_types", types=types, count=len(by_type) - _LISTED)
        yield translate("quantize.in_float", types=types)
    between = sum(node.float_between_integers for node in plan.nodes)
    if between:
        yield translate("quantize.between", count=between)


# Targets: a list of all, and everything about one.


_COLUMNS = (
    Column("name", bilingual("quantize.target_name"), "text"),
    Column("activations", bilingual("quantize.target_activations"), "text"),
    Column("weights", bilingual("quantize.target_weights"), "text"),
    Column("scale", bilingual("quantize.target_scale"), "text"),
    Column("requantize", bilingual("quantize.target_requantize"), "text"),
)
_Line = tuple[str, str]


def _description(target: Target) -> Phrase:
    return Phrase(target.description, target.description_zh or target.description)


def targets_page(targets: Sequence[Target]) -> Page:
    """The main figures of each target, then a sentence on each."""
    about = Facts(tuple((plain(target.name), _description(target)) for target in targets))
    blocks = (_figures(targets), about, Paragraph(bilingual("quantize.target_shows")))
    return Page("targets", bilingual("quantize.target_targets"), blocks)


def _figures(targets: Sequence[Target]) -> TableBlock:
    rows = tuple(
        (
            target.name,
            in_all_languages(lambda target=target: _activations(target)),  # type: ignore[misc]
            in_all_languages(lambda target=target: _weights(target)),  # type: ignore[misc]
            in_all_languages(lambda target=target: _scale(target.weights[target.weight])),  # type: ignore[misc]
            bilingual(f"quantize.target_{target.arithmetic.requantization}"),
        )
        for target in targets
    )
    return TableBlock("targets", bilingual("quantize.target_targets"), _COLUMNS, rows)


def _activations(target: Target) -> str:
    if target.weight_only:
        return translate("quantize.target_float")
    activation = target.activations[target.activation]
    kind = "sym" if activation.symmetric else "asym"
    return f"{activation.dtype} {translate(f'quantize.target_{kind}')}"


def _weights(target: Target) -> str:
    if target.weight_block:
        text = translate("quantize.target_per_block", size=target.weight_block)
        return f"{target.weights[target.weight].dtype} {text}"
    granularity = "per_channel" if target.weight_axes else "per_tensor"
    return f"{target.weights[target.weight].dtype} {translate(f'quantize.target_{granularity}')}"


def _scale(spec: QuantSpec) -> str:
    """The rule that gives the scale."""
    if spec.power_of_two:
        return translate("quantize.target_power_of_two")
    if not spec.symmetric:
        return f"range/{spec.code_max - spec.code_min}"
    top = (1 << (spec.bits - 1)) - 1
    half = {
        "max_code": f"{top}",
        "half_span": f"{top}.5",
        "larger_side": f"{top}|{top + 1}",
        "one_sided": f"{top}|{2 * top + 1}",
    }
    return f"absmax/{half[spec.symmetric_scale]}"


def target_page(target: Target) -> Page:
    """Everything about a target."""
    about = Paragraph(_description(target))
    facts = bilingual_facts(lambda: ((label, text) for label, text in _lines(target) if text))
    table = _figures([target])
    # A terminal has all of it in lines.
    figures = replace(table, columns=tuple(replace(each, on=("html", "csv")) for each in table.columns))
    return Page("target", plain(target.name), (Headline("plain", plain(target.name)), about, facts, figures))


def _lines(target: Target) -> Iterator[_Line]:
    yield from _types(target)
    yield from _where(target)
    yield from _arithmetic(target)
    yield from _fusions(target)
    yield translate("quantize.target_pass_through"), _names(target.pass_through)
    yield translate("quantize.target_shared_scale"), _names(target.shared_scale)
    decides = target.shared_scale_decides.replace("_", " ") if target.shared_scale else ""
    yield translate("quantize.target_decides"), decides
    for op, (low, high) in target.fixed_ranges.items():
        text = translate("quantize.target_from_to", low=f"{low:g}", high=f"{high:g}")
        yield translate("quantize.target_range", op=op), text
    yield translate("quantize.target_tables"), _names(target.arithmetic.tables)
    integers = target.quantized_ops - target.pass_through - target.shared_scale
    yield translate("quantize.target_in_integers"), _names(integers)


def _types(target: Target) -> Iterator[_Line]:
    for dtype, spec in target.activations.items():
        yield translate("quantize.target_activations_of", dtype=dtype), _spec(spec)
    yield translate("quantize.target_live"), _spec(target.live_operand) if target.live_operand else ""
    for dtype, spec in target.weights.items():
        yield translate("quantize.target_weights_of", dtype=dtype), _spec(spec)
    axes = ", ".join(f"{op} {axis}" for op, axis in target.weight_axes.items())
    yield translate("quantize.target_axes"), axes or translate("quantize.target_no_axes")
    possible = ", ".join(f"{op} {axis}" for op, axis in target.weight_axes_possible.items())
    yield translate("quantize.target_axes_possible"), possible
    bias = "bias_integers" if target.bias == "s32" else "float"
    yield translate("quantize.target_bias"), translate(f"quantize.target_{bias}")


def _where(target: Target) -> Iterator[_Line]:
    results = "only_inputs" if target.float_results else "integers"
    yield translate("quantize.target_results"), translate(f"quantize.target_{results}")
    outputs = "integers" if target.quantize_outputs and not target.float_results else "float"
    yield translate("quantize.target_outputs"), translate(f"quantize.target_{outputs}")
    floats = "can_float" if target.float_allowed else "no_float"
    yield translate("quantize.target_float"), translate(f"quantize.target_{floats}")
    for key, ops in sorted(target.only.items()):
        yield translate("quantize.target_only", what=key), _names(ops)
    for op, needs in target.needs.items():
        yield translate("quantize.target_needs", op=op), _names(needs)


def _arithmetic(target: Target) -> Iterator[_Line]:
    arithmetic, calibration = target.arithmetic, target.calibration
    sums = translate(f"quantize.target_accumulator_{arithmetic.overflow}", bits=arithmetic.accumulator_bits)
    yield translate("quantize.target_sums"), sums
    requantization = translate("quantize.target_float")
    if arithmetic.requantization == "fixed_point":
        key = "multiplier_twice" if arithmetic.rounds_twice else "multiplier"
        requantization = translate(f"quantize.target_{key}", bits=arithmetic.multiplier_bits)
    rounding = translate(f"quantize.target_rounds_{arithmetic.rounding}")
    text = semicolons(requantization, translate("quantize.target_rounds", how=rounding))
    yield translate("quantize.target_requantization"), text
    first = translate(f"quantize.target_{'weights_first' if calibration.weights_first else 'all_float'}")
    methods = {"method": calibration.method, "weights": calibration.weight_method}
    yield translate("quantize.target_calibration"), translate("quantize.target_calibrated", first=first, **methods)


def _fusions(target: Target) -> Iterator[_Line]:
    """One line for each fusion, but one for all that are a pattern alone."""
    alone = [steps[0] for steps in target.fusions if len(steps) == 1]
    chains = [" + ".join(step.replace("|", " | ") for step in steps) for steps in target.fusions if len(steps) > 1]
    for place, line in enumerate((*chains, ", ".join(alone))):
        yield "" if place else translate("quantize.target_as_one"), line


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _spec(spec: QuantSpec) -> str:
    return commas(
        translate(f"quantize.target_{'symmetric' if spec.symmetric else 'asymmetric'}"),
        translate("quantize.target_codes", low=spec.code_min, high=spec.code_max),
        translate("quantize.target_scale_of", rule=_scale(spec)),
        translate("quantize.target_rounds", how=translate(f"quantize.target_rounds_{spec.rounding}")),
        translate("quantize.target_smallest", least=f"{spec.smallest_scale:g}") if spec.smallest_scale else "",
    )


def targets_json(targets: Sequence[Target]) -> str:
    """Targets as JSON: a list, in the keys of `roundoff.core.target.Target`."""
    return json.dumps([asdict(target) for target in targets], indent=1, ensure_ascii=False, default=sorted)
