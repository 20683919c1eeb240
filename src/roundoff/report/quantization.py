"""A quantization for people: how outputs agree, what became of every wish, what stayed in float."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roundoff.core.quant_plan import FLOAT, NodePlan, QuantPlan, Resolution, rule_text
from roundoff.core.scores import OutputAgreement
from roundoff.core.wording import counted

__all__ = ["agreement_line", "methods_table", "plan_lines", "resolutions_table"]

_LISTED = 4
# Reasons for staying in float that are told; the file has the rest.
_REASONS = 3


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


def plan_lines(plan: QuantPlan) -> Iterator[str]:
    """What is quantized and what is not, in a few lines."""
    quantized = [node for node in plan.nodes if not _is_float(node)]
    kinds = Counter(each.kind for each in plan.quantizers)
    placed = f"{kinds['activation']} activations, {kinds['weight']} weights, {kinds['bias']} biases"
    yield f"{len(quantized)} of {counted(len(plan.nodes), 'node')} quantized ({placed})"
    reasons: dict[str, list[str]] = {}
    for node in plan.nodes:
        if _is_float(node):
            reasons.setdefault(node.reason or "left in float", []).append(f"{node.node} ({node.op_type})")
    commonest = sorted(reasons.items(), key=lambda item: -len(item[1]))
    for reason, names in commonest[:_REASONS]:
        yield f"in float, {counted(len(names), 'node')}, {reason}: {_few(names)}"
    rest = sum(len(names) for _, names in commonest[_REASONS:])
    if rest:
        yield f"in float, {counted(rest, 'more node')} for other reasons; plan.json has them all"


def _is_float(node: NodePlan) -> bool:
    parts = (node.effective.activation, node.effective.weight, node.effective.output)
    return all(part in ("", FLOAT) for part in parts)


def resolutions_table(resolutions: Sequence[Resolution]) -> RenderableType:
    """What became of each rule: how many nodes it named, how many have what it asked for, and why others not."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("rule", overflow="fold", ratio=2)
    table.add_column("nodes", justify="right", no_wrap=True)
    table.add_column("applied", justify="right", no_wrap=True)
    table.add_column("why not", overflow="fold", ratio=3)
    for resolution in resolutions:
        why: dict[str, list[str]] = {}
        for node, reason in resolution.reasons.items():
            why.setdefault(reason, []).append(node)
        said = "\n".join(f"{_few(nodes)}: {reason}" for reason, nodes in why.items())
        counts = (str(len(resolution.matched)), str(len(resolution.applied)))
        table.add_row(Text(rule_text(resolution.rule)), *counts, Text(said))
    return Group(Text("rules", style="bold"), table)


def _few(names: Sequence[str]) -> str:
    rest = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {rest} more" if rest > 0 else "")
