"""Run a model and write every tensor it computes, or their statistics.

The model runs in onnxruntime on the CPU with graph optimization off, one
sample at a time. Weights are not written. DIR appears only once it is
complete: with tensors.json, which lists the files, or with stats.csv and
stats.json.
"""

import argparse
import json
from pathlib import Path

from roundoff.cli.options import add_data_options, data_words, size, threads
from roundoff.cli.terminal import Terminal
from roundoff.messages.message import english, shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "model", type=Path, metavar="MODEL", help="the model: .onnx, or .prototxt[,.caffemodel] of Caffe"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="where the tensors go")
    parser.add_argument(
        "--tensors",
        nargs="+",
        action="extend",
        default=[],
        metavar="GLOB",
        help="write only tensors whose names match, e.g. '*relu*' (default: all)",
    )
    parser.add_argument(
        "--stats-only", action="store_true", help="write the statistics of each tensor, not its values"
    )
    parser.add_argument(
        "--format", choices=("npy", "npz", "bin", "ascend-npy"), help="how tensors are stored (default: npy)"
    )
    parser.add_argument("--force", action="store_true", help="replace what an earlier dump wrote to DIR")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    limits = parser.add_argument_group("limits")
    limits.add_argument(
        "--max-disk", type=size, metavar="SIZE", help="refuse to write more, e.g. 20GB (default: the free space)"
    )
    limits.add_argument(
        "--max-memory",
        type=size,
        metavar="SIZE",
        help="memory to stay within, in several passes if need be, e.g. 2GiB (default: most of the free memory)",
    )
    limits.add_argument("--threads", type=threads, metavar="N", help="threads to use (default: all cores)")
    add_data_options(parser)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Estimate, run, write."""
    from roundoff.api.tensors import MAP_NAME, STATS_NAME, STATS_TABLE_NAME, dump
    from roundoff.messages.numbers import format_size
    from roundoff.messages.sanitize import for_people
    from roundoff.report.statistics import statistics_json, statistics_table

    outcome = dump(
        args.model,
        args.output,
        tensors=args.tensors,
        stats_only=args.stats_only,
        format=args.format,
        force=args.force,
        max_disk=args.max_disk,
        tell=terminal.note,
        threads=args.threads,
        max_memory=args.max_memory,
        progress=terminal,
        **data_words(args),
    )
    found = outcome.result
    if args.stats_only:
        if args.json:
            terminal.text(statistics_json(found.statistics))
        else:
            terminal.print(statistics_table(for_people(found.statistics)))
        terminal.written([args.output / STATS_TABLE_NAME, args.output / STATS_NAME])
        return outcome.exit_code
    if args.json:
        result = {
            "output": str(args.output),
            "map": str(args.output / MAP_NAME),
            "format": found.format,
            "tensors": found.tensors,
            "samples": list(found.samples),
            "size_bytes": found.size_bytes,
        }
        terminal.text(json.dumps(result, indent=1, ensure_ascii=False))
    else:
        written = english(
            "{output}: {tensors} {tensors:tensor|tensors} x {samples} {samples:sample|samples}, {size}",
            output=args.output,
            tensors=found.tensors,
            samples=len(found.samples),
            size=format_size(found.size_bytes),
        )
        terminal.text(shown(written))
    terminal.note(english("written: {output}, which lists all files", output=args.output / MAP_NAME))
    return outcome.exit_code
