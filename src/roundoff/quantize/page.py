"""The page on a quantization: how outputs agree, and which precision every node has."""

from roundoff.core.plan import QuantPlan
from roundoff.measure.metrics import OutputAgreement
from roundoff.measure.thresholds import ThresholdSet
from roundoff.messages.catalogue import Phrase, in_all, plain, say, told
from roundoff.messages.phrases import count_of
from roundoff.pages.blocks import NODE_COLUMNS, Block, Column, Facts, Headline, Page, Table, Tone, notes
from roundoff.quantize.pipeline import Quantization
from roundoff.quantize.terminal import agreement_line, plan_lines

__all__ = ["quantization_page"]

_COLUMNS = (
    *NODE_COLUMNS,
    Column("unit", plain("unit"), "node"),
    Column("activation", plain("activation"), "text"),
    Column("weight", plain("weight"), "text"),
    Column("reason", plain("reason"), "text"),
)


def quantization_page(result: Quantization, limits: ThresholdSet, *, model: str) -> Page:
    """What was quantized, whether its outputs agree with those in float, and what every node became.

    Args:
        result: The quantization.
        limits: What outputs must keep to be called fine.
        model: What the model is called.
    """
    best = result.best
    judged = [each.score.values for each in best.agreement if each.score.values]
    fine = all(limits.holds(values) for values in judged)
    kind, tone = ("fine", "good") if fine else ("lossy", "bad")
    if not judged:
        kind, tone = "not_judged", "open"

    def title() -> str:
        said = told(
            "quantization_text.title",
            model=model,
            target=result.target.name,
            method=best.method,
            samples=count_of(result.calibration.samples, "sample"),
        )
        return told("quantization_text.titled", title=said)

    headline = Headline(_TONES[tone], in_all(title), word=say(f"quantization_text.word_{kind}"))
    blocks: list[Block] = [headline, Facts(_facts(best.agreement, best.plan, limits)), _nodes(best.plan)]
    return Page("quantization", plain("quantization"), (*blocks, *notes(result.notes)))


_TONES: dict[str, Tone] = {"good": "good", "bad": "bad", "open": "open"}


def _facts(
    agreements: tuple[OutputAgreement, ...], plan: QuantPlan, limits: ThresholdSet
) -> tuple[tuple[Phrase, Phrase], ...]:
    rows: list[tuple[Phrase, Phrase]] = []
    for number, each in enumerate(agreements):
        label = plain("") if number else say("quantization_text.output")
        rows.append((label, in_all(lambda each=each: agreement_line(each))))  # type: ignore[misc]
    judged_by = say("quantization_text.no_numbers" if agreements else "quantization_text.no_samples")
    if any(each.score.values for each in agreements):
        judged_by = in_all(
            lambda: told(
                "quantization_text.against_float",
                samples=count_of(agreements[0].samples, "sample"),
                limits=limits.describe(),
            )
        )
    rows.append((say("quantization_text.judged"), judged_by))
    lines = len(list(plan_lines(plan)))
    for number in range(lines):
        label = plain("") if number else say("quantization_text.nodes")
        rows.append((label, in_all(lambda number=number: list(plan_lines(plan))[number])))  # type: ignore[misc]
    return tuple(rows)


def _nodes(plan: QuantPlan) -> Table:
    rows = tuple(
        (each.node, each.op_type, each.unit, each.seen.activation, each.seen.weight, each.reason)
        for each in plan.nodes
    )
    return Table("nodes", say("quantization_text.nodes"), _COLUMNS, rows)
