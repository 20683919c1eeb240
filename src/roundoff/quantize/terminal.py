"""A quantization for people: how outputs agree, what became of every wish, what stayed in float."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roundoff.core.plan import QuantPlan, Resolution, rule_text
from roundoff.measure.metrics import OutputAgreement
from roundoff.measure.thresholds import ThresholdSet
from roundoff.messages.catalogue import told
from roundoff.messages.numbers import decibels_with_unit, percent_digits, score_text
from roundoff.messages.phrases import commas, count_of, few

__all__ = ["agreement_line", "methods_table", "plan_lines", "quantization_verdict", "resolutions_table"]

_LISTED = 4


def agreement_line(agreement: OutputAgreement) -> str:
    """One output in words: ``prob: cosine 0.9987, sqnr 25.3 dB, same top-1 99.0 %``."""
    values = agreement.score.values
    if not values:
        return told("quantization_text.said", name=agreement.output, text=agreement.score.detail)
    cosine, sqnr = score_text("cosine", values["cosine"]), decibels_with_unit(values["sqnr_db"])
    text = told("quantization_text.agreement", cosine=cosine, db=sqnr)
    if agreement.same_top1 is not None:
        text = commas(text, told("quantization_text.same_top", share=percent_digits(agreement.same_top1, 1)))
    text = commas(text, agreement.score.detail)
    return told("quantization_text.said", name=agreement.output, text=text)


def methods_table(trials: Mapping[str, Sequence[OutputAgreement]], *, taken: str) -> RenderableType:
    """Calibration methods side by side, on the same statistics."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column(told("quantization_text.column_method"), no_wrap=True)
    table.add_column(told("quantization_text.column_outputs"), overflow="fold")
    table.add_column("", no_wrap=True)
    for method, agreements in trials.items():
        said = Text("\n".join(agreement_line(each) for each in agreements))
        mark = told("quantization_text.taken") if method == taken else ""
        table.add_row(method, said, Text(mark, style="green"))
    return table


def quantization_verdict(
    title: str, agreements: Sequence[OutputAgreement], plan: QuantPlan, *, limits: ThresholdSet, advice: str
) -> RenderableType:
    """What a busy person reads: whether outputs agree with those of the float model, and what is quantized.

    Args:
        title: What was quantized, for what, and how.
        agreements: Of all outputs.
        plan: What is quantized.
        limits: What outputs must keep to be called fine.
        advice: What to type next when they do not.
    """
    judged = [each.score.values for each in agreements if each.score.values]
    fine = all(limits.holds(values) for values in judged)
    kind, style = ("fine", "bold green") if fine else ("lossy", "bold red")
    if not judged:
        kind, style = "not_judged", "bold yellow"
    headline = Text(told(f"quantization_text.word_{kind}"), style=style)
    headline.append(told("quantization_text.titled", title=title), style="not bold default")
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for index, agreement in enumerate(agreements):
        grid.add_row("" if index else f"  {told('quantization_text.output')}", Text(agreement_line(agreement)))
    judged_by = told("quantization_text.no_samples")
    if agreements:
        judged_by = told("quantization_text.no_numbers")
    if judged:
        samples = count_of(agreements[0].samples, "sample")
        judged_by = told("quantization_text.against_float", samples=samples, limits=limits.describe())
    grid.add_row(f"  {told('quantization_text.judged')}", Text(judged_by))
    for index, line in enumerate(plan_lines(plan)):
        grid.add_row("" if index else f"  {told('quantization_text.nodes')}", Text(line))
    if not fine:
        grid.add_row(f"  {told('quantization_text.next')}", Text(advice))
    return Group(headline, grid)


def plan_lines(plan: QuantPlan) -> Iterator[str]:
    """What is quantized and what is not, in a few lines."""
    left = [node for node in plan.nodes if node.in_float]
    kinds = Counter(each.kind for each in plan.quantizers)
    yield told(
        "quantization_text.placed",
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
            types = told("quantization_text.more_types", types=types, count=len(by_type) - _LISTED)
        yield told("quantization_text.in_float", types=types)
    between = sum(node.float_between_integers for node in plan.nodes)
    if between:
        yield told("quantization_text.between", count=between)


def resolutions_table(resolutions: Sequence[Resolution]) -> RenderableType:
    """What became of each rule: how many nodes it named, how many have what it asked for, and why others not."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column(told("quantization_text.column_rule"), overflow="fold", ratio=2)
    table.add_column(told("quantization_text.nodes"), justify="right", no_wrap=True)
    table.add_column(told("quantization_text.column_applied"), justify="right", no_wrap=True)
    table.add_column(told("quantization_text.column_why"), overflow="fold", ratio=3)
    for resolution in resolutions:
        why: dict[str, list[str]] = {}
        for node, reason in (*resolution.reasons.items(), *resolution.remarks.items()):
            why.setdefault(reason, []).append(node)
        said = "\n".join(f"{few(nodes, _LISTED)}: {reason}" for reason, nodes in why.items())
        counts = (str(len(resolution.matched)), str(len(resolution.applied)))
        table.add_row(Text(rule_text(resolution.rule)), *counts, Text(said))
    return Group(Text(told("quantization_text.rules"), style="bold"), table)
