"""Two rules made one: an offline model seen through its quantized original, or through itself without fusion."""

from dataclasses import replace

from roundoff.vendors.ascend.quant_pairs import names_quantizer
from roundoff.vendors.ascend.rules import Operator, Origin, Rule, Warn, group_key

__all__ = ["through_quantization", "without_fusion"]


def through_quantization(offline: Rule, quantized: Rule, *, warn: Warn) -> Rule:
    """The rule of an offline model in terms of the float original, by that of the quantized original.

    Args:
        offline: From offline operators to those of the quantized original.
        quantized: From those to the operators of the float original.
        warn: Told of names that the second does not know.
    """
    merged = Rule(group_of=dict(offline.group_of), input_nodes=list(offline.input_nodes))
    renewed: dict[str, Operator] = {}
    for operator in (operator for group in offline.groups.values() for operator in group):
        originals = dict.fromkeys(
            original
            for name in operator.originals
            for found in quantized.groups.get(quantized.group_of.get(name, ""), ())
            for original in found.originals
        )
        outputs = [
            found for origin in operator.outputs for found in _before_quantization(origin, quantized, warn=warn)
        ]
        changed = replace(
            operator,
            originals=tuple(originals) or operator.originals,
            outputs=tuple(outputs) or operator.outputs,
            last_originals=_last_first(operator, quantized),
        )
        key = group_key(changed.name, changed.originals)
        merged.group_of[changed.name] = key
        group = merged.groups.setdefault(key, [])
        changed = replace(changed, index=group[0].index if group else len(merged.groups) - 1)
        group.append(changed)
        renewed[changed.name] = changed
    merged.in_order = [renewed[operator.name] for operator in offline.in_order]
    return merged


def _last_first(operator: Operator, quantized: Rule) -> tuple[str, ...]:
    """Names in the float original of what an operator computes, from the last on; quantizers compute nothing."""
    found: list[str] = []
    for name in reversed(operator.originals):
        if not names_quantizer(name):
            group = quantized.groups.get(quantized.group_of.get(name, ""), ())
            found += [origin.name for same in group if same.name == name for origin in same.outputs]
            found.append(name)
    return tuple(dict.fromkeys(filter(None, found)))


def _before_quantization(origin: Origin, quantized: Rule, *, warn: Warn) -> list[Origin]:
    if not origin.name:
        return []
    if origin.name not in quantized.group_of:
        warn(f'The name "{origin.name}" is not in quant fusion rule.')
        return []
    group = quantized.groups.get(quantized.group_of[origin.name], [])
    if origin.index is None:
        return [_laid_out(found, origin) for operator in group for found in operator.outputs]
    return [
        _laid_out(operator.outputs[origin.index], origin) if origin.index < len(operator.outputs) else Origin()
        for operator in group
        if operator.name == origin.name
    ]


def _laid_out(found: Origin, offline: Origin) -> Origin:
    """The offline model knows the layout, which the quantized original does not say."""
    return replace(found, format=offline.format, shape=offline.shape) if offline.format else found


def without_fusion(fused: Rule, unfused: Rule, *, warn: Warn, strict: bool) -> Rule:
    """The rule of a fused offline model in terms of the same model without fusion.

    Args:
        fused: From fused operators to the original.
        unfused: From operators without fusion to the original.
        warn: Told of operators without counterpart.
        strict: Drop, as the vendor does, all operators but one that the compiler made, and those that share
            an original.
    """
    counterpart = {original: operator.name for operator in unfused.in_order for original in operator.originals}
    merged = Rule(input_nodes=[] if strict else list(fused.input_nodes))
    keys: set[str] = set()
    originals: set[str] = set()
    taken: set[str] = set()
    for name, key in reversed(fused.group_of.items()):
        if key in keys:
            continue
        keys.add(key)
        merged.group_of[name] = key
        for operator in fused.groups[key]:
            first = operator.originals[0]
            if strict and not _first_of_its_kind(first, counterpart.get(first), originals=originals, taken=taken):
                continue
            changed = replace(
                operator,
                originals=_counterparts(operator, counterpart, warn=warn),
                outputs=_found_again(operator, counterpart, unfused=unfused, warn=warn),
            )
            merged.groups.setdefault(key, []).append(changed)
            merged.in_order.insert(0, changed)
    if not strict:
        merged.group_of = dict(fused.group_of)
    return merged


def _first_of_its_kind(first: str, counterpart: str | None, *, originals: set[str], taken: set[str]) -> bool:
    if first in originals:
        return False
    originals.add(first)
    if counterpart is None:
        return True
    if counterpart in taken:
        return False
    taken.add(counterpart)
    return True


def _counterparts(operator: Operator, counterpart: dict[str, str], *, warn: Warn) -> tuple[str, ...]:
    if operator.originals == ("",):
        return ("",)
    found: dict[str, None] = {}
    for name in operator.originals:
        if name in counterpart:
            found[counterpart[name]] = None
        else:
            warn(f'There is no original operator associated with the operator "{name}" in original op names.')
    return tuple(found)


def _found_again(
    operator: Operator, counterpart: dict[str, str], *, unfused: Rule, warn: Warn
) -> tuple[Origin, ...]:
    outputs = []
    for place, origin in enumerate(operator.outputs):
        name = counterpart.get(origin.name) if origin.name else None
        index = None if name is None else _output_of(unfused, name, origin)
        if origin.name and index is None:
            warn(f'There is no valid output desc associated with "{operator.name}:output:{place}".')
        outputs.append(replace(origin, name=name or origin.name, index=origin.index if index is None else index))
    return tuple(outputs)


def _output_of(unfused: Rule, name: str, origin: Origin) -> int | None:
    """Which output of an operator without fusion is the same original tensor."""
    for operator in unfused.groups.get(unfused.group_of.get(name, ""), ()):
        for place, found in enumerate(operator.outputs):
            if (found.name, found.index) == (origin.name, origin.index):
                return place
    return None
