"""A quantization for people: how outputs agree, what became of every wish, what stayed in float."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roundoff.core.quant_plan import QuantPlan, Resolution, rule_text
from roundoff.core.scores import OutputAgreement
from roundoff.core.thresholds import ThresholdSet
from roundoff.core.wording import counted

__all__ = ["agreement_line", "methods_table", "plan_lines", "quantization_verdict", "resolutions_table"]

_LISTED = 4


def agreement_line(agreement: OutputAgreement) -> str:
    """One output in words: ``prob: cosine 0.9987, sqnr 25.3 dB, same top-1 99.0 %``."""
    values = agreement.score.values
    if not values:
        return f"{agreement.output}: {agreement.score.detail}"
    # Rounded down, because 1.00000 must mean exactly that.
    parts = [f"cosine {math.floor(values['cosine'] * 1e5) / 1e5:.5f}", f"sqnr {values['sqnr_db']:.1f} dB"]
    if agreement.same_top1 is not None:
        parts.append(f"same top-1 {100 * agreement.same_top1:.1f} %")
    if agreement.score.detail:
        parts.append(agreement.score.detail)
    return f"{agreement.output}: {', '.join(parts)}"


def methods_table(trials: Mapping[str, Sequence[OutputAgreement]], *, taken: str) -> RenderableType:
    """Calibration methods side by side, on the same statistics."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("method", no_wrap=True)
    table.add_column("outputs", overflow="fold")
    table.add_column("", no_wrap=True)
    for method, agreements in trials.items():
        said = Text("\n".join(agreement_line(each) for each in agreements))
        table.add_row(method, said, Text("taken", style="green") if method == taken else "")
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
    word, style = ("FINE", "bold green") if fine else ("LOSSY", "bold red")
    headline = Text(word, style=style) if judged else Text("NOT JUDGED", style="bold yellow")
    headline.append(f": {title}", style="not bold default")
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for index, agreement in enumerate(agreements):
        grid.add_row("" if index else "  output", Text(agreement_line(agreement)))
    judged_by = "not at all: outputs were not compared, because no samples were given"
    if agreements:
        judged_by = "not at all: no output holds numbers that can be compared"
    if judged:
        judged_by = f"against float on {counted(agreements[0].samples, 'sample')}, {limits.describe()}"
    grid.add_row("  judged", Text(judged_by))
    for index, line in enumerate(plan_lines(plan)):
        grid.add_row("" if index else "  nodes", Text(line))
    if not fine:
        grid.add_row("  next", Text(advice))
    return Group(headline, grid)


def plan_lines(plan: QuantPlan) -> Iterator[str]:
    """What is quantized and what is not, in a few lines."""
    left = [node for node in plan.nodes if node.in_float]
    kinds = Counter(each.kind for each in plan.quantizers)
    placed = f"{kinds['activation']} activations, {kinds['weight']} weights, {kinds['bias']} biases"
    yield f"{len(plan.nodes) - len(left)} of {counted(len(plan.nodes), 'node')} quantized ({placed})"
    by_type = Counter(node.op_type for node in left)
    if by_type:
        types = ", ".join(f"{count} {op_type}" for op_type, count in by_type.most_common(_LISTED))
        more = f" and {len(by_type) - _LISTED} more types" if len(by_type) > _LISTED else ""
        yield f"in float: {types}{more}; plan.json and roundoff audit say why for each"
    between = sum(node.float_between_integers for node in plan.nodes)
    if between:
        yield f"{counted(between, 'node')} computed in float between integers"


def resolutions_table(resolutions: Sequence[Resolution]) -> RenderableType:
    """What became of each rule: how many nodes it named, how many have what it asked for, and why others not."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("rule", overflow="fold", ratio=2)
    table.add_column("nodes", justify="right", no_wrap=True)
    table.add_column("applied", justify="right", no_wrap=True)
    table.add_column("why not, and remarks", overflow="fold", ratio=3)
    for resolution in resolutions:
        why: dict[str, list[str]] = {}
        for node, reason in (*resolution.reasons.items(), *resolution.remarks.items()):
            why.setdefault(reason, []).append(node)
        said = "\n".join(f"{_few(nodes)}: {reason}" for reason, nodes in why.items())
        counts = (str(len(resolution.matched)), str(len(resolution.applied)))
        table.add_row(Text(rule_text(resolution.rule)), *counts, Text(said))
    return Group(Text("rules", style="bold"), table)


def _few(names: Sequence[str]) -> str:
    rest = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {rest} more" if rest > 0 else "")
