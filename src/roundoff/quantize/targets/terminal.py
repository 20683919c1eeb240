"""Targets as text: a list of all, and everything about one."""

import json
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from roundoff.core.quantizers import QuantSpec
from roundoff.core.target import Target

__all__ = ["target_page", "targets_json", "targets_list"]

_COLUMNS = 80
_HEADINGS = ("name", "activations", "weights", "weight scale", "requantize")
_ROUNDING = {
    "half_even": "halves to even",
    "half_up": "halves up",
    "half_away": "halves away from zero",
    "floor": "down",
}
_REQUANTIZATION = {"float": "float", "fixed_point": "fixed"}


def targets_list(targets: Sequence[Target]) -> str:
    """One target after the other: the main figures, then a sentence."""
    rows = [_figures(target) for target in targets]
    widths = [max(map(len, column)) for column in zip(_HEADINGS, *rows, strict=True)]
    lines = [_line(_HEADINGS, widths)]
    for target, row in zip(targets, rows, strict=True):
        lines += [_line(row, widths), *_wrapped(target.description, indent="    ")]
    return "\n".join(lines)


def _line(cells: Iterable[str], widths: Iterable[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _wrapped(text: str, *, indent: str, first: str | None = None) -> list[str]:
    lead = indent if first is None else first
    return textwrap.wrap(text, _COLUMNS, initial_indent=lead, subsequent_indent=indent, break_long_words=False)


def _figures(target: Target) -> tuple[str, str, str, str, str]:
    activation, weight = target.activations[target.activation], target.weights[target.weight]
    granularity = "per channel" if target.weight_axes else "per tensor"
    return (
        target.name,
        f"{activation.dtype} {'sym' if activation.symmetric else 'asym'}",
        f"{weight.dtype} {granularity}",
        _scale(weight),
        _REQUANTIZATION[target.arithmetic.requantization],
    )


def _scale(spec: QuantSpec) -> str:
    """The rule that gives the scale."""
    if not spec.symmetric:
        text = f"range/{spec.code_max - spec.code_min}"
    else:
        top = (1 << (spec.bits - 1)) - 1
        half = {"max_code": f"{top}", "half_span": f"{top}.5", "larger_side": f"{top}|{top + 1}"}
        text = f"absmax/{half[spec.symmetric_scale]}"
    return "power of two" if spec.power_of_two else text


def target_page(target: Target) -> str:
    """Everything about a target, readable in 80 columns."""
    arithmetic, calibration = target.arithmetic, target.calibration
    requantization = _REQUANTIZATION[arithmetic.requantization]
    if arithmetic.requantization == "fixed_point":
        twice = ", rounded twice" if arithmetic.rounds_twice else ""
        requantization += f"-point multiplier of {arithmetic.multiplier_bits} bits and a shift{twice}"
    axes = ", ".join(f"{op} {axis}" for op, axis in target.weight_axes.items())
    first = "weights quantized first" if calibration.weights_first else "everything in float"
    fields = [
        *((f"activations {dtype}", _spec(spec)) for dtype, spec in target.activations.items()),
        ("live operands", _spec(target.live_operand) if target.live_operand else ""),
        *((f"weights {dtype}", _spec(spec)) for dtype, spec in target.weights.items()),
        ("weight axes", axes or "none: one scale for each weight"),
        ("also possible", ", ".join(f"{op} {axis}" for op, axis in target.weight_axes_possible.items())),
        ("bias", "integers at input scale x weight scale" if target.bias == "s32" else "float"),
        ("results", "float: only inputs are quantized" if target.float_results else "integers"),
        ("outputs", "integers" if target.quantize_outputs and not target.float_results else "float"),
        ("float", "can be asked for" if target.float_allowed else "not at all"),
        *((f"only {key}", _names(ops)) for key, ops in sorted(target.only.items())),
        *((f"needs {op}", _names(needs)) for op, needs in target.needs.items()),
        ("sums", f"{arithmetic.accumulator_bits} bits, {arithmetic.overflow} on overflow"),
        ("requantization", f"{requantization}; rounds {_ROUNDING[arithmetic.rounding]}"),
        ("calibration", f"{calibration.method}, weights {calibration.weight_method}; observed with {first}"),
        *_fusions(target),
        ("pass through", _names(target.pass_through)),
        ("shared scale", _names(target.shared_scale)),
        ("decides there", target.shared_scale_decides.replace("_", " ") if target.shared_scale else ""),
        *((f"range {op}", f"{low:g} to {high:g}") for op, (low, high) in target.fixed_ranges.items()),
        ("tables", _names(arithmetic.tables)),
        ("in integers", _names(target.quantized_ops - target.pass_through - target.shared_scale)),
    ]
    shown = [(key, text) for key, text in fields if text]
    indent = " " * (max(len(key) for key, _ in shown) + 4)
    lines = [target.name, *_wrapped(target.description, indent="  "), ""]
    for key, text in shown:
        lines += _wrapped(text, indent=indent, first=f"  {key}".ljust(len(indent)))
    return "\n".join(lines)


def _fusions(target: Target) -> list[tuple[str, str]]:
    """One line for each fusion, but one for all that are a pattern alone."""
    alone = [steps[0] for steps in target.fusions if len(steps) == 1]
    chains = [" + ".join(step.replace("|", " | ") for step in steps) for steps in target.fusions if len(steps) > 1]
    lines = [*chains, ", ".join(alone)]
    return [("computed as one" if line is lines[0] else "", line) for line in lines]


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _spec(spec: QuantSpec) -> str:
    parts = [
        "symmetric" if spec.symmetric else "asymmetric",
        f"codes {spec.code_min}..{spec.code_max}",
        f"scale {_scale(spec)}",
        f"rounds {_ROUNDING[spec.rounding]}",
        f"1 for a scale below {spec.smallest_scale:g}" if spec.smallest_scale else "",
    ]
    return ", ".join(part for part in parts if part)


def targets_json(targets: Sequence[Target]) -> str:
    """Targets as JSON: a list, in the keys of `roundoff.core.target.Target`."""
    return json.dumps([asdict(target) for target in targets], indent=1, ensure_ascii=False, default=sorted)
