"""The command that shows how this machine computes with integers."""

import argparse

from roundoff.cli.options import command, opt
from roundoff.cli.results import print_page
from roundoff.cli.terminal import Terminal


@command(opt("--json", "print the measurements as JSON"))
def self_check(args: argparse.Namespace, terminal: Terminal) -> int:
    """Show how this machine computes with integers.

    Small quantized models are run in several ways, and what comes out is
    compared: whether onnxruntime's fused int8 kernels equal the graph, whether
    products of u8 and s8 codes saturate, and whether results depend on threads,
    batches and optimization. Nothing is looked up in a list of processors.
    """
    from roundoff.api.checks import self_check
    from roundoff.core.document import json_text

    outcome = self_check()
    print_page(terminal, json_text(outcome.result.record()) if args.json else outcome.page)
    return outcome.exit_code
