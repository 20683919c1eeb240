"""Planning in tests: a network, a target and rules as text, in one line."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roundoff.core.plan import NodePlan, PlannedQuantizer, QuantPlan
from roundoff.core.target import Target
from roundoff.graph.load import Model
from roundoff.messages.message import Message
from roundoff.quantize.planning.planner import plan_quantization
from roundoff.quantize.planning.rules import parse_rule
from roundoff.quantize.targets.files import load_target
from tests.contracts.target import check_plan
from tests.models import loaded


def english(reasons: Mapping[str, Message]) -> dict[str, str]:
    """Reasons as they are read."""
    return {node: str(reason) for node, reason in reasons.items()}


class Planned:
    """A plan that can be asked."""

    def __init__(self, plan: QuantPlan, model: Model) -> None:
        self.plan = plan
        self.model = model

    def node(self, name: str) -> NodePlan:
        return next(each for each in self.plan.nodes if each.node == name)

    def quantizer(self, name: str) -> PlannedQuantizer:
        return next(each for each in self.plan.quantizers if each.name == name)

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.plan.quantizers]

    def seen(self, node: str, place: int) -> str:
        """The dtype a node input sees; ``float`` when it is not quantized."""
        for each in self.plan.quantizers:
            if any((reader.node, reader.input) == (node, place) for reader in each.consumers):
                return each.spec.dtype
        return "float"

    def precision(self, name: str) -> tuple[str, str, str]:
        effective = self.node(name).effective
        return effective.activation, effective.weight, effective.output

    def units(self) -> dict[str, list[str]]:
        """Nodes of each unit with more than one."""
        found: dict[str, list[str]] = {}
        for each in self.plan.nodes:
            found.setdefault(each.unit, []).append(each.node)
        return {unit: nodes for unit, nodes in found.items() if len(nodes) > 1}


def planned(network: Any, folder: Path, target: str | Target, *rules: str, **options: Any) -> Planned:
    """The plan of a network, checked for everything that always holds."""
    model = loaded(network, folder)
    chip = load_target(target) if isinstance(target, str) else target
    parsed = [parse_rule(rule) for rule in rules]
    plan = plan_quantization(model, chip, rules=parsed, **options)
    if not options.get("origins"):
        check_plan(plan, model, chip, parsed)
    return Planned(plan, model)


SHARING = """
extends = "generic-int8"
description = "Signed, and Concat shares one scale."
default_activation = "s8"
shared_scale = ["Concat"]
"""
"""A chip whose joined tensors have one scale."""


def target_like(folder: Path, text: str) -> Target:
    """A target that extends a shipped one."""
    path = folder / "target.toml"
    path.write_text(text, encoding="utf-8")
    return load_target(path)
