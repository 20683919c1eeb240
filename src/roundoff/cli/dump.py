"""Run a model and write every tensor it computes, or their statistics.

The model runs in onnxruntime on the CPU with graph optimization off, one
sample at a time. Weights are not written. DIR appears only once it is
complete: with tensors.json, which lists the files, or with stats.csv and
stats.json.
"""

import argparse
import contextlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.data_options import add_data_options, samples_from
from roundoff.cli.terminal import Terminal
from roundoff.cli.values import size, threads
from roundoff.errors import EXIT_OK, BadInput

if TYPE_CHECKING:
    from roundoff.cli.disk import DiskBudget
    from roundoff.core.tensors import TensorInfo
    from roundoff.run.capture import Estimate, LiveSource
    from roundoff.run.feeds import Samples
    from roundoff.tensors.writer import WriteFormat

SUMMARY = "run a model and write every tensor it computes, or statistics"

_MAP = "tensors.json"
_STATS = "stats.json"
_STATS_TABLE = "stats.csv"
# By these an earlier dump is known; either kind may replace the other.
_MARKERS = (_MAP, _STATS)
# What a tensor takes besides its values: a file header, a line in the map, a part of a disk block.
_OVERHEAD_BYTES = 512


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
    from roundoff.cli.disk import disk_budget
    from roundoff.core.files import check_output_directory

    if args.stats_only and args.format:
        what = f"--format {args.format} has no effect with --stats-only, which writes no tensors."
        raise BadInput(what, fix="leave one of them out")
    check_output_directory(args.output, marker=_MARKERS, force=args.force)
    source, tops = _open(args, terminal)
    disk = disk_budget(args.output, args.max_disk)
    terminal.note(_describe(source.estimate, stats_only=args.stats_only))
    disk.check(_disk_bytes(source.estimate, stats_only=args.stats_only), claim="The dump takes about")
    with contextlib.closing(source):
        if args.stats_only:
            _write_statistics(args, terminal, source)
        else:
            _write_tensors(args, terminal, source, disk=disk, tops=tops)
    return EXIT_OK


def _open(args: argparse.Namespace, terminal: Terminal) -> "tuple[LiveSource, Mapping[str, tuple[str, int]]]":
    """The tensors to write, and the layers of a Caffe net they are tops of.

    Says how each pattern was understood and what cannot be written.
    """
    from roundoff.graph.caffe.convert import layer_tops
    from roundoff.graph.interface import hidden_tensors, inputs
    from roundoff.graph.load import load_model
    from roundoff.messages.numbers import counted
    from roundoff.run.capture import LiveSource
    from roundoff.run.feeds import NO_INPUTS
    from roundoff.run.session import share_threads

    model = load_model(args.model)
    specs = inputs(model)
    samples: Samples = NO_INPUTS
    if specs or args.data:
        samples = files = samples_from(args, specs)
        for name in files.skipped:
            terminal.note(f"not taken for a sample: {name}")
    threads = share_threads(args.threads)[0] if args.stats_only else args.threads
    source = LiveSource(
        model, samples, tensors=args.tensors, max_memory=args.max_memory, threads=threads, option="--tensors"
    )
    for pattern, count in source.selection.matches:
        terminal.note(f"--tensors {pattern!r}: {counted(count, 'tensor')}")
    for info in source.tensors:
        if info.problem:
            terminal.note(f"left out: tensor {info.name!r}, because {info.problem}")
    hidden = Counter() if args.tensors else Counter(hidden_tensors(model).values())
    for node, count in hidden.items():
        inside = counted(count, "tensor")
        terminal.note(f"left out: {inside} inside node {node!r}, which cannot be seen from outside")
    if source.estimate.tensors == 0:
        raise BadInput("None of the tensors asked for can be written.", fix="choose others with --tensors")
    return source, layer_tops(model)


def _describe(estimate: "Estimate", *, stats_only: bool) -> str:
    from roundoff.messages.numbers import counted, format_size

    about = "" if estimate.exact else "about "
    disk = format_size(_disk_bytes(estimate, stats_only=stats_only))
    text = f"estimate: {counted(estimate.tensors, 'tensor')} x {counted(estimate.samples, 'sample')}"
    text += f", {about}{disk} on disk, {format_size(estimate.memory_bytes)} of memory"
    if estimate.passes > 1:
        text += f"\n  {estimate.passes} passes per sample, to stay within the memory"
    return text


def _disk_bytes(estimate: "Estimate", *, stats_only: bool) -> int:
    if stats_only:
        return _OVERHEAD_BYTES * estimate.tensors
    return estimate.samples * (estimate.sample_bytes + _OVERHEAD_BYTES * estimate.tensors)


def _write_statistics(args: argparse.Namespace, terminal: Terminal, source: "LiveSource") -> None:
    from roundoff.core.files import output_directory, write_text
    from roundoff.measure.statistics import summarize_tensors
    from roundoff.messages.sanitize import for_people
    from roundoff.report.statistics import statistics_csv, statistics_json, statistics_table
    from roundoff.run.session import share_threads

    with output_directory(args.output, marker=_MARKERS, force=args.force) as staged:
        summaries = summarize_tensors(source, threads=share_threads(args.threads)[1], progress=terminal)
        write_text(staged / _STATS_TABLE, statistics_csv(summaries))
        write_text(staged / _STATS, statistics_json(summaries))
    if args.json:
        terminal.text(statistics_json(summaries))
    else:
        terminal.print(statistics_table(for_people(summaries)))
    terminal.written([args.output / _STATS_TABLE, args.output / _STATS])


def _named(
    source: "LiveSource", terminal: Terminal, *, tops: "Mapping[str, tuple[str, int]]"
) -> "list[tuple[TensorInfo, int]]":
    """The tensors to write and which output each is: of its node, or, where `tops` knows it, of its layer."""
    from roundoff.messages.numbers import counted

    readable = [info for info in source.tensors if not info.problem]
    if not tops:
        return [(info, source.output_index(info.name)) for info in readable]
    steps = [info.name for info in readable if info.name not in tops]
    if steps:
        terminal.note(f"left out: {counted(len(steps), 'tensor')} inside layers, such as {steps[0]!r}")
    known = [(info, *tops[info.name]) for info in readable if info.name in tops]
    return [(replace(info, node=layer), index) for info, layer, index in known]


def _write_tensors(
    args: argparse.Namespace,
    terminal: Terminal,
    source: "LiveSource",
    *,
    disk: "DiskBudget",
    tops: "Mapping[str, tuple[str, int]]",
) -> None:
    from roundoff.core.files import output_directory
    from roundoff.messages.numbers import counted, format_size
    from roundoff.tensors.writer import open_writer

    form: WriteFormat = args.format or "npy"
    readable = _named(source, terminal, tops=tops if form == "ascend-npy" else {})
    size_bytes = 0
    terminal.start("dumping", len(source.samples))
    with (
        output_directory(args.output, marker=_MARKERS, force=args.force) as staged,
        open_writer(staged, form, samples=source.samples) as writer,
    ):
        for sample in source.samples:
            writer.begin_sample(sample)
            for info, index in readable:
                array = source.read(info.name, sample)
                size_bytes += array.nbytes
                disk.check(size_bytes, claim="Samples are larger than the first one; the dump has come to")
                writer.write(info, array, output_index=index)
            terminal.advance()
    terminal.finish()
    written = f"{counted(len(readable), 'tensor')} x {counted(len(source.samples), 'sample')}"
    if args.json:
        result = {
            "output": str(args.output),
            "map": str(args.output / _MAP),
            "format": form,
            "tensors": len(readable),
            "samples": list(source.samples),
            "size_bytes": size_bytes,
        }
        terminal.text(json.dumps(result, indent=1, ensure_ascii=False))
    else:
        terminal.text(f"{args.output}: {written}, {format_size(size_bytes)}")
    terminal.note(f"written: {args.output / _MAP}, which lists all files")
