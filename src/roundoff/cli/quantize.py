"""Quantize a float model the way a chip's toolchain would.

Batch normalization is folded, every tensor gets a place in the target's
number formats, ranges are observed on --data, and DIR receives a model with
quantize-dequantize pairs that runs in onnxruntime, a model with integer
weights, plan.json with all decisions and scales, and the statistics, from
which another plan can be made without running the model again.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.options import add_data_options, add_quantize_options, data_words, quantize_words, size, threads
from roundoff.cli.terminal import Terminal
from roundoff.core.files import model_files

if TYPE_CHECKING:
    from roundoff.quantize.pipeline import Quantization


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "model", type=Path, metavar="MODEL", help="the float model: .onnx, or .prototxt[,.caffemodel] of Caffe"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="where the results go")
    parser.add_argument(
        "--target",
        required=True,
        metavar="NAME|FILE",
        help="the chip, as listed by 'roundoff targets', or a .toml file of one's own",
    )
    add_quantize_options(parser)
    parser.add_argument("--prefix", metavar="NAME", help="start of the models' names (default: that of MODEL)")
    parser.add_argument(
        "--statistics",
        type=Path,
        metavar="FILE",
        help="take what an earlier run observed (its calibration.npz); --data then only serves to compare outputs",
    )
    parser.add_argument("--force", action="store_true", help="replace what an earlier run wrote to DIR")
    parser.add_argument("--json", action="store_true", help="print the plan and the figures as JSON")
    parser.add_argument("--max-memory", type=size, metavar="SIZE", help="memory to stay within, e.g. 2GiB")
    parser.add_argument("--threads", type=threads, metavar="N", help="threads to use (default: all cores)")
    add_data_options(parser)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Quantize, write, print."""
    from roundoff.api.quantization import file_prefix, quantize
    from roundoff.core.files import check_output_directory
    from roundoff.quantize.plan_file import PLAN_NAME

    file_prefix(args.model, args.prefix)
    check_output_directory(args.output, marker=PLAN_NAME, force=args.force)
    outcome = quantize(
        args.model,
        statistics=args.statistics,
        target=args.target,
        threads=args.threads,
        max_memory=args.max_memory,
        progress=terminal,
        **data_words(args),
        **quantize_words(args),
    )
    outcome.save(args.output, prefix=args.prefix, force=args.force)
    _print(args, terminal, outcome.result)
    terminal.written([args.output])
    return outcome.exit_code


def _print(args: argparse.Namespace, terminal: Terminal, result: "Quantization") -> None:
    from roundoff.measure.verdicts import usual_limits
    from roundoff.messages.catalogue import bilingual
    from roundoff.pages.terminal import terminal_page
    from roundoff.quantize.page import quantization_page

    if args.json:
        terminal.text(_json(result))
        return
    name = model_files(args.model)[0].name
    advice = bilingual("quantize.advice", model=str(args.model), folder=str(args.output))
    page = quantization_page(result, usual_limits(), model=name, advice=advice)
    terminal.print(terminal_page(page))


def _json(result: "Quantization") -> str:
    from roundoff.core.document import json_text

    best = result.best
    content = {
        "target": result.target.name,
        "method": best.method,
        "samples": result.calibration.samples,
        "judgement": None if best.judged is None else best.judged.judgement,
        "outputs": {trial.method: trial.agreement for trial in result.trials},
        "nodes": best.plan.nodes,
        "rules": best.plan.resolutions,
        "notes": result.notes,
    }
    return json_text(content)
