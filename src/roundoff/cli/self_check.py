"""The command that shows how this machine computes with integers."""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from roundoff.cli.options import command, opt
from roundoff.cli.terminal import Terminal, wrapped_lines
from roundoff.errors import EXIT_OK
from roundoff.messages.catalogue import translate
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
    from roundoff.api.checks import self_check

    host = self_check()
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
    yield from wrapped_lines(_verdict(host), _WIDTH)
    yield ""
    features = ", ".join(host.features) or translate("cli.features_unknown")
    yield from _entry("host", f"onnxruntime {host.onnxruntime}, {host.machine}, {features}", "")
    for title, measured, meaning in (_fused(host), _saturation(host), *_stability(host)):
        yield from _entry(title, measured, translate(meaning))


def _entry(title: str, measured: str, meaning: str) -> Iterator[str]:
    """What was measured, then what it means."""
    from rich.cells import cell_len

    width = _WIDTH - _TITLE_WIDTH
    lines = [line for part in measured.splitlines() for line in wrapped_lines(part, width)]
    lines += wrapped_lines(meaning, width, first="-> ", others="   ") if meaning else []
    named = translate(f"cli.title_{title}")
    for number, line in enumerate(lines):
        label = named if number == 0 else ""
        yield f"{label}{' ' * (_TITLE_WIDTH - cell_len(label))}{line}"


def _verdict(host: "HostArithmetic") -> str:
    exact = not host.fused_steps and not host.saturates
    kernels = translate("cli.kernels_equal" if exact else "cli.kernels_differ")
    return translate("cli.stable" if host.reference_is_stable else "cli.unstable", kernels=kernels)


def _fused(host: "HostArithmetic") -> tuple[str, str, str]:
    measured = "\n".join(_path(path) for path in host.fused)
    return "fused", measured, "cli.fused_differs" if host.fused_steps else "cli.fused_follows"


def _path(path: "FusedPath") -> str:
    name = translate("cli.path_network") if path.name == "network" else path.name
    data = translate(f"cli.data_{path.data.replace('-', '_').replace(' ', '_')}")
    subject = translate("cli.path", name=name, data=data)
    if not path.kernels:
        return translate("cli.path_not_fused", path=subject)
    if not path.moved:
        return translate("cli.path_equal", path=subject, codes=f"{path.elements:,}")
    moved, codes = f"{path.moved:,}", f"{path.elements:,}"
    return translate("cli.path_moves", path=subject, moved=moved, codes=codes, steps=path.largest)


def _saturation(host: "HostArithmetic") -> tuple[str, str, str]:
    if not host.saturates:
        return "products", translate("cli.products_exact"), "cli.products_fine"
    share = share_text(host.largest_product, 1)
    return "products", translate("cli.products_saturate", share=share), "cli.products_lose"


def _stability(host: "HostArithmetic") -> Iterator[tuple[str, str, str]]:
    checks = {
        "optimization": host.basic_is_equal,
        "threads": host.threads_are_equal,
        "batches": host.batches_are_equal,
    }
    for title, equal in checks.items():
        subject = translate(f"cli.compared_{title}", threads=host.threads)
        measured = translate("cli.bit_equal" if equal else "cli.not_bit_equal", subject=subject)
        yield title, measured, f"cli.{title}_fine" if equal else "cli.keep_setting"
