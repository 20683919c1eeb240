"""Requested against effective precision: of one model, or of a run with its plan."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from roundoff.core.plan import NodePlan, Precision, QuantPlan, Resolution
from roundoff.core.quantizers import Quantizer
from roundoff.graph.block_weights import block_products
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.messages.message import Translatable, english
from roundoff.studies.audit.checks import EffectiveView, check_numbers, check_structure
from roundoff.studies.audit.expectations import compare_codes, compare_edges, compare_with_plan
from roundoff.studies.audit.result import RUN_PLAN, Audit, AuditFinding, AuditRow

Findings = Mapping[str, Sequence[AuditFinding]]
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
