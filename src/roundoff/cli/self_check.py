"""The command that shows how this machine computes with integers."""

import argparse
import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from roundoff.cli.options import command, opt
from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_OK
from roundoff.messages.numbers import share_text

if TYPE_CHECKING:
    from roundoff.run.host_arithmetic import FusedPath, HostArithmetic

_WIDTH = 80
_TITLE_WIDTH = 14


@command(opt("--json", "print the measurements as JSON"))
def self_check(args: argparse.Namespace, terminal: Terminal) -> int:
    """Show how this machine computes with integers.

    Small quantized models are run in several ways, and what comes out is
    compared: whether onnxruntime's fused int8 kernels equal the graph, whether
    products of u8 and s8 codes saturate, and whether results depend on threads,
    batches and optimization. Nothing is looked up in a list of processors.
    """
    from roundoff.run.host_arithmetic import measure_host

    host = measure_host()
    terminal.text(_as_json(host) if args.json else "\n".join(_page(host)))
    return EXIT_OK


def _as_json(host: "HostArithmetic") -> str:
    facts = asdict(host) | {
        "saturates": host.saturates,
        "fused_steps": host.fused_steps,
        "reference_is_stable": host.reference_is_stable,
        "summary": host.summary(),
    }
    return json.dumps(facts, indent=1)


def _page(host: "HostArithmetic") -> Iterator[str]:
    yield from textwrap.wrap(_verdict(host), _WIDTH)
    yield ""
    features = ", ".join(host.features) or "instructions unknown"
    yield from _entry("host", f"onnxruntime {host.onnxruntime}, {host.machine}, {features}", "")
    for title, measured, meaning in (_fused(host), _saturation(host), *_stability(host)):
        yield from _entry(title, measured, meaning)


def _entry(title: str, measured: str, meaning: str) -> Iterator[str]:
    """What was measured, then what it means."""
    lines = [line for part in measured.splitlines() for line in textwrap.wrap(part, _WIDTH - _TITLE_WIDTH)]
    lines += textwrap.wrap(meaning, _WIDTH - _TITLE_WIDTH, initial_indent="-> ", subsequent_indent="   ")
    for number, line in enumerate(lines):
        yield f"{title if number == 0 else '':<{_TITLE_WIDTH}}{line}"


def _verdict(host: "HostArithmetic") -> str:
    exact = not host.fused_steps and not host.saturates
    kernels = "equal the graph" if exact else "do not compute what the graph says"
    fused = f"On this host onnxruntime's fused int8 kernels {kernels}; roundoff does not use them"
    if host.reference_is_stable:
        return f"{fused}, and what it uses gives the same bits every time."
    return f"{fused}. But what it uses depends on settings here: see below."


def _fused(host: "HostArithmetic") -> tuple[str, str, str]:
    measured = "\n".join(_path(path) for path in host.fused)
    if host.fused_steps:
        meaning = (
            "Accuracy measured with onnxruntime's default settings is that of this processor's kernels. Compare "
            "chips with roundoff's integer mode, or run with ORT_ENABLE_BASIC."
        )
    else:
        meaning = "Results of onnxruntime's default settings can be trusted here to follow the graph."
    return "fused int8", measured, meaning


def _path(path: "FusedPath") -> str:
    subject = f"{path.name}, {path.data} data"
    if not path.kernels:
        return f"{subject}: not fused"
    if not path.moved:
        return f"{subject}: all {path.elements:,} codes equal"
    steps = f"{path.largest} step{'s' * (path.largest > 1)}"
    return f"{subject}: {path.moved:,} of {path.elements:,} move, at most {steps}"


def _saturation(host: "HostArithmetic") -> tuple[str, str, str]:
    measured = "the sum of products 255 x 127 is exact"
    meaning = "Large weights and activations do no harm in integer kernels here."
    if host.saturates:
        share = share_text(host.largest_product, 1)
        measured = f"the sum of products 255 x 127 is {share} of what it should be: pairs saturate at 16 bits"
        meaning = (
            "In integer kernels int8 models lose accuracy here that they do not lose on a chip, unless weights "
            "keep to 7 bits (reduce_range)."
        )
    return "u8 x s8", measured, meaning


def _stability(host: "HostArithmetic") -> Iterator[tuple[str, str, str]]:
    checks = (
        (
            "optimization",
            host.basic_is_equal,
            "ORT_DISABLE_ALL and ORT_ENABLE_BASIC",
            "Either level is a reference.",
        ),
        (
            "threads",
            host.threads_are_equal,
            f"1 and {host.threads} threads",
            "--threads changes time, not results.",
        ),
        ("batches", host.batches_are_equal, "samples alone and in a batch", "Batches change time, not results."),
    )
    for title, equal, subject, meaning in checks:
        measured = f"{subject}: {'bit-equal' if equal else 'NOT bit-equal'}"
        warning = "Keep this setting the same in runs that are compared."
        yield title, measured, meaning if equal else warning
