"""Our own rules: what `roundoff quantize --rules` reads."""

import json
from collections.abc import Iterable

from roundoff.core.plan import FLOAT, PRECISION_PARTS, Precision, Rule
from roundoff.messages.message import english
from roundoff.vendors.dialects.settings import (
    Decisions,
    Dialect,
    Written,
    decision_summary,
    unsupported_codes,
    unsupported_scales,
)


def _write(decisions: Decisions) -> Written:
    asked = decisions.made.rules
    rules = asked if asked and _known(decisions, asked) else tuple(_derived(decisions))
    target = decisions.made.target or "TARGET"
    lines = [f"# For: roundoff quantize {decisions.model} --target {target} --rules FILE", ""]
    for rule in rules:
        lines += ["[[rule]]", *_selector(rule), f"precision = {_precision(rule.precision)}", ""]
    if not rules:
        lines.append("rule = []")
    name = f"{decisions.made.stem}_rules.toml"
    calibration = f" --calibration {decisions.made.method}" if decisions.made.method else ""
    return Written(
        {name: "\n".join(lines).rstrip() + "\n"},
        decision_summary(decisions, weights=True),
        (*unsupported_scales(decisions), *unsupported_codes(decisions)),
        english(
            "roundoff quantize {model} --data DATA --target {target}{calibration} --rules {name} -o DIR; the "
            "scales are in plan.json, which --quantized DIR reads",
            model=decisions.model,
            target=target,
            calibration=calibration,
            name=name,
        ),
    )


def _known(decisions: Decisions, rules: Iterable[Rule]) -> bool:
    """Whether all that rules name is there: in a changed graph some of the user's names may not be."""
    if not decisions.made.graph:
        return True
    graph = decisions.quantized.float_model.proto.graph
    names = {name for node in graph.node for name in (node.name, node.op_type, *node.input, *node.output)}
    asked = (name for rule in rules for name in (*rule.selector, *rule.end))
    return all(name in names or any(letter in "*?[" for letter in name) for name in asked)


def _derived(decisions: Decisions) -> Iterable[Rule]:
    """A rule for the nodes of each precision that is not the most common one."""
    common = Precision(decisions.common_dtype("activation"), decisions.common_dtype("weight"))
    found: dict[Precision, list[str]] = {}
    for node in decisions.computing:
        one = {part: getattr(node.precision, part).split("/")[-1] for part in ("activation", "weight")}
        differs = {part: dtype for part, dtype in one.items() if dtype and dtype != getattr(common, part)}
        if node.float_between:
            differs["activation"] = FLOAT
        if differs:
            found.setdefault(Precision(**differs), []).append(node.name)
    return [Rule("node", tuple(names), precision) for precision, names in found.items()]


def _selector(rule: Rule) -> list[str]:
    if rule.kind == "between":
        return [f"between = {{ start = {_texts(rule.selector)}, end = {_texts(rule.end)} }}"]
    return [f"{rule.kind} = {_texts(rule.selector)}"]


def _texts(names: Iterable[str]) -> str:
    # What JSON escapes is escaped in the same way in a basic string of TOML.
    return json.dumps(list(names), ensure_ascii=False).replace("\x7f", "\\u007f")


def _precision(precision: Precision) -> str:
    parts = {part: getattr(precision, part) for part in PRECISION_PARTS}
    return "{ " + ", ".join(f'{part} = "{dtype}"' for part, dtype in parts.items() if dtype) + " }"


DIALECT = Dialect("roundoff", "rules of roundoff quantize", _write)
