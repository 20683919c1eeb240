"""Planning a quantization: from a float model, a target and the user's rules to quantizers without numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from roundoff.core.plan import Precision, QuantPlan, Rule, rule_text
from roundoff.core.target import Target
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.graph.precisions import NodePrecisions
from roundoff.quantize.planning.explanations import Explainer, Resolver
from roundoff.quantize.planning.fusing import find_units
from roundoff.quantize.planning.quantizers import Methods, make_quantizers
from roundoff.quantize.planning.requested_precision import Roles, Wishes
from roundoff.quantize.planning.rules import Names, select
from roundoff.quantize.planning.storage import store
from roundoff.quantize.planning.view import GraphView

__all__ = ["plan_quantization"]


def plan_quantization(
    model: Model,
    target: Target,
    *,
    rules: Sequence[Rule] = (),
    origins: Mapping[str, str] | None = None,
    method: str = "",
    weight_method: str = "",
) -> QuantPlan:
    """Decide what is quantized, and how.

    Args:
        model: The float model, prepared: batch normalization folded, constants computed.
        target: For which chip.
        rules: What the user wants otherwise than the target's default.
        origins: The user's names of nodes, each with the name of the node in `model` that took it over.
        method: Calibration method of activations; the target's own when empty.
        weight_method: Calibration method of weights; the target's own when empty.

    Raises:
        BadInput: A rule names nothing, or asks for nothing.
    """
    for rule in rules:
        if rule.precision == Precision():
            what = f"The rule {rule_text(rule)!r} asks for nothing."
            raise BadInput(what, fix="give it a precision, e.g. u16")
    view = GraphView(model)
    names = Names(view, origins or {})
    selections = select(rules, view, names)
    wishes = Wishes.of(selections, view, target, names)
    roles = Roles(view, target, find_units(view, target), wishes, names)
    storage = store(roles)
    methods = Methods(method or target.calibration.method, weight_method or target.calibration.weight_method)
    quantizers = make_quantizers(roles, storage, methods)
    explainer = Explainer(roles, storage, quantizers)
    seen = NodePrecisions(model, quantizers.planned)
    plans = {
        node.name: replace(explainer.plan(node), seen=seen.effective(seen.by_name[node.name]))
        for node in view.nodes
    }
    resolver = Resolver(roles, storage, quantizers, plans)
    return QuantPlan(
        target.name,
        quantizers.planned,
        tuple(plans.values()),
        tuple(resolver.resolve(selection) for selection in selections),
    )
