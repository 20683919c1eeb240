"""A quantization: how outputs agree, what became of every wish, what stayed in float."""

from collections import Counter
from collections.abc import Iterator

from roundoff.core.plan import QuantPlan, Resolution, rule_text
from roundoff.measure.metrics import OutputAgreement
from roundoff.measure.thresholds import ThresholdSet
from roundoff.messages.catalogue import Phrase, bilingual, current_language, in_all, plain, translate
from roundoff.messages.message import Message, phrase_of, shown
from roundoff.messages.numbers import decibels_with_unit, percent_digits, score_text
from roundoff.messages.phrases import commas, count_of, few, semicolons
from roundoff.pages.blocks import Block, Column, Headline, Page, Place, TableBlock, Tone, notes, spoken_facts
from roundoff.pages.coverage import judgement_lines
from roundoff.quantize.pipeline import Quantization

__all__ = ["agreement_line", "quantization_page"]

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
        samples=in_all(lambda: count_of(result.calibration.samples, "sample")),
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
    blocks: list[Block] = [headline, spoken_facts(lines), nodes]
    if len(result.trials) > 1:
        methods = tuple(
            (
                trial.method,
                in_all(lambda trial=trial: "; ".join(map(agreement_line, trial.agreement))),  # type: ignore[misc]
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
    text = in_all(
        lambda: semicolons(
            *(
                translate("quantize.said", name=few(nodes, _LISTED), text=shown(reason))
                for reason, nodes in why.items()
            )
        )
    )
    return rule_text(resolution.rule), len(resolution.matched), len(resolution.applied), text


def agreement_line(agreement: OutputAgreement) -> str:
    """One output in words: ``prob: cosine 0.9987, sqnr 25.3 dB, same top-1 99.0 %``."""
    values = agreement.score.values
    if not values:
        return translate("quantize.said", name=agreement.output, text=agreement.score.detail)
    cosine, sqnr = score_text("cosine", values["cosine"]), decibels_with_unit(values["sqnr_db"])
    text = translate("quantize.agreement", cosine=cosine, db=sqnr)
    if agreement.same_top1 is not None:
        text = commas(text, translate("quantize.same_top", share=percent_digits(agreement.same_top1, 1)))
    text = commas(text, agreement.score.detail)
    return translate("quantize.said", name=agreement.output, text=text)


def _plan_lines(plan: QuantPlan) -> Iterator[str]:
    """What is quantized and what is not, in a few lines."""
    left = [node for node in plan.nodes if node.in_float]
    kinds = Counter(each.kind for each in plan.quantizers)
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
