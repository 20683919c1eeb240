"""Compare two sets of tensors: say which differ, how, and where it started.

Each side is a folder of .npy files, an .npz, raw .bin with a manifest, a
safetensors file, or a model (.onnx, .prototxt), which is then run on --data
with graph optimization off. The reference comes first; its names are used
throughout.

Verdicts: PASS, FAIL, INCOMPLETE (nothing that was judged fails, but not every
output of the network was judged). Exit code 1 when incomplete, or when
thresholds that were given are missed.
"""

import argparse
import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from roundoff.cli.data_options import add_data_options, given_options, samples_from
from roundoff.cli.html_option import add_html_option, check_html, write_html
from roundoff.cli.terminal import Terminal
from roundoff.cli.values import size, threads
from roundoff.core.files import is_model
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED, BadInput

if TYPE_CHECKING:
    from roundoff.align.pairing import Pairing
    from roundoff.core.document import RunDocument
    from roundoff.core.tensors import TensorInfo, TensorSource, Topology
    from roundoff.graph.load import Model
    from roundoff.measure.thresholds import ThresholdSet
    from roundoff.run.feeds import Samples
    from roundoff.studies.compare.result import Comparison

__all__ = ["SUMMARY", "Sides", "add_arguments", "compare_sides", "open_sides", "run"]

SUMMARY = "which tensors of two runs differ, how, and where it started"

_DEFAULT_ROWS = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("reference", type=Path, metavar="REFERENCE", help="tensors, or a model to run on --data")
    parser.add_argument("candidate", type=Path, metavar="CANDIDATE", help="tensors, or a model to run on --data")
    add_data_options(parser)
    matching = parser.add_argument_group("matching", "Which tensor is which.")
    matching.add_argument("--reference-format", metavar="NAME", help="format of REFERENCE (default: recognised)")
    matching.add_argument("--candidate-format", metavar="NAME", help="format of CANDIDATE (default: recognised)")
    matching.add_argument(
        "--format", metavar="NAME", help="format of both: npy, npz, bin, safetensors, ... (default: recognised)"
    )
    matching.add_argument(
        "--model",
        type=Path,
        metavar="FILE",
        help="the reference's model, when REFERENCE is a dump: gives order, shapes, culprits and victims",
    )
    matching.add_argument(
        "--aliases", type=Path, metavar="FILE", help="JSON or CSV: reference name, candidate name"
    )
    matching.add_argument("--no-value-matching", action="store_true", help="match by names only")
    judging = parser.add_argument_group("judging")
    limits = judging.add_mutually_exclusive_group()
    limits.add_argument(
        "--threshold", metavar="METRIC=LIMIT,...", help="exit with 1 when missed, e.g. cosine=0.99,rmse=1"
    )
    limits.add_argument("--profile", metavar="NAME", help="named thresholds (ascend, axera, horizon, rknn, ...)")
    judging.add_argument(
        "--channel-axis", type=int, metavar="N", help="axis of the channels (default: 1; last of 3)"
    )
    output = parser.add_argument_group("output")
    output.add_argument("--sort", choices=("order", "worst"), default="order", help="order of the table")
    output.add_argument(
        "--rows", type=_rows, default=_DEFAULT_ROWS, metavar="N|all", help="rows shown (default: 40)"
    )
    printed = output.add_mutually_exclusive_group()
    printed.add_argument("--json", action="store_true", help="print the run document instead of the table")
    printed.add_argument("--csv", action="store_true", help="print CSV instead of the table")
    add_html_option(output)
    output.add_argument("--junit", type=Path, metavar="FILE", help="also write JUnit XML")
    output.add_argument("-o", "--output", type=Path, metavar="DIR", help="write run.json and tensors.csv to DIR")
    output.add_argument("--force", action="store_true", help="replace what an earlier run wrote")
    running = parser.add_argument_group("running models")
    running.add_argument("--max-memory", type=size, metavar="SIZE", help="memory the tensors may take, e.g. 2GB")
    running.add_argument("--threads", type=threads, metavar="N", help="threads per node (default: all cores)")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Compare, print, write; 1 when thresholds that were given are missed, or it is incomplete."""
    started = time.monotonic()
    _check_outputs(args)
    thresholds = _thresholds(args)
    comparison, network = compare_sides(args, terminal, thresholds)
    document = _document(args, network, comparison, time.monotonic() - started)
    written = _write(args, document, comparison)
    _print(args, terminal, document, comparison)
    if written:
        terminal.written(written)
    return EXIT_OK if comparison.exit_good else EXIT_THRESHOLD_MISSED


def _rows(text: str) -> int | None:
    if text == "all":
        return None
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor 'all'")
    return int(text)


def _check_outputs(args: argparse.Namespace) -> None:
    """Refuse before the work what could not be written after it."""
    from roundoff.core.document import DOCUMENT_NAME
    from roundoff.core.files import check_output_directory, check_output_file

    if args.output is not None:
        check_output_directory(args.output, marker=DOCUMENT_NAME, force=args.force)
    if args.junit is not None:
        check_output_file(args.junit, force=args.force, option="--junit")
    check_html(args)


def _thresholds(args: argparse.Namespace) -> "ThresholdSet | None":
    from roundoff.measure.thresholds import load_profile, parse_thresholds

    if args.threshold is not None:
        return parse_thresholds(args.threshold)
    return None if args.profile is None else load_profile(args.profile)


def compare_sides(
    args: argparse.Namespace, terminal: Terminal, thresholds: "ThresholdSet | None"
) -> "tuple[Comparison, Topology | None]":
    """What differs, and the network that the names are of."""
    from roundoff.graph.interface import topology
    from roundoff.studies.compare.study import CompareSettings, compare

    with open_sides(args, terminal) as sides:
        network = None if sides.model is None else topology(sides.model)
        settings = CompareSettings(thresholds=thresholds, topology=network, channel_axis=args.channel_axis)
        found = compare(sides.reference, sides.candidate, sides.pairing, settings=settings, progress=terminal)
        return found, network


class Sides(NamedTuple):
    """Both sides of a comparison, which tensor is which, and the model of the reference, if known."""

    reference: "TensorSource"
    candidate: "TensorSource"
    pairing: "Pairing"
    model: "Model | None"


@contextlib.contextmanager
def open_sides(args: argparse.Namespace, terminal: Terminal) -> Iterator[Sides]:
    """Open both sides and match their tensors.

    Raises:
        BadInput: The options contradict each other, or what they name cannot be used.
        CannotAlign: No tensor of one side could be paired with one of the other.
    """
    from roundoff.align.matching import align
    from roundoff.align.names import read_aliases
    from roundoff.graph.quantized_model import dequantized_tensors

    _check_models(args)
    with contextlib.ExitStack() as stack:
        reference, known, shapes = _reference(args, stack)
        candidate, own = _source(args, args.candidate, args.candidate_format, shapes=shapes, stack=stack)
        pairing = align(
            reference,
            candidate,
            aliases={} if args.aliases is None else read_aliases(args.aliases),
            origins={} if own is None else dequantized_tensors(own),
            by_value=not args.no_value_matching,
            progress=terminal,
        )
        yield Sides(reference, candidate, pairing, known)


def _reference(
    args: argparse.Namespace, stack: contextlib.ExitStack
) -> "tuple[TensorSource, Model | None, Sequence[TensorInfo] | None]":
    """The reference, the model behind it, and what that says of shapes."""
    from roundoff.align.matching import rename_after
    from roundoff.graph.load import load_model
    from roundoff.graph.shapes import tensor_infos

    if args.model is None:
        reference, own = _source(args, args.reference, args.reference_format, shapes=None, stack=stack)
        return reference, own, None if own is None else reference.tensors
    model = load_model(args.model)
    shapes = tensor_infos(model)
    reference, _ = _source(args, args.reference, args.reference_format, shapes=shapes, stack=stack)
    return rename_after(reference, shapes), model, shapes


def _check_models(args: argparse.Namespace) -> None:
    """Refuse options that would have no effect."""
    models = [path for path in (args.reference, args.candidate) if is_model(path)]
    given = [*given_options(args)]
    given += [
        f"--{name}" for name in ("max-memory", "threads") if getattr(args, name.replace("-", "_")) is not None
    ]
    if given and not models:
        raise BadInput(
            f"{', '.join(given)} {'were' if len(given) > 1 else 'was'} given, but neither side is a model.",
            fix=f"leave {' and '.join(given)} out, or give an .onnx or .prototxt file",
        )
    if args.model is not None and is_model(args.reference):
        raise BadInput("--model was given, but REFERENCE is a model itself.", fix="leave --model out")
    if args.format and len(models) == 2:
        raise BadInput(f"--format {args.format} was given, but both sides are models.", fix="leave --format out")


def _source(
    args: argparse.Namespace,
    path: Path,
    chosen_format: str | None,
    *,
    shapes: "Sequence[TensorInfo] | None",
    stack: contextlib.ExitStack,
) -> "tuple[TensorSource, Model | None]":
    """Open one side; a model comes along when it is one."""
    from roundoff.graph.interface import inputs
    from roundoff.graph.load import load_model
    from roundoff.run.capture import LiveSource
    from roundoff.run.feeds import NO_INPUTS
    from roundoff.tensors import open_source

    if not is_model(path):
        return open_source(path, format=chosen_format or args.format, shapes=shapes), None
    if chosen_format:
        raise BadInput(f"A format was given for {path}, which is a model.", fix="leave the format option out")
    own = load_model(path)
    specs = inputs(own)
    samples: Samples = samples_from(args, specs) if specs or args.data else NO_INPUTS
    source = LiveSource(own, samples, max_memory=args.max_memory, threads=args.threads)
    return stack.enter_context(contextlib.closing(source)), own


def _document(
    args: argparse.Namespace, network: "Topology | None", comparison: "Comparison", elapsed_s: float
) -> "RunDocument":
    from roundoff.cli.provenance import data_paths, environment, input_file
    from roundoff.core.document import SCHEMA, RunDocument

    read = [("reference", args.reference), ("candidate", args.candidate)]
    read += [(role, path) for role, path in (("model", args.model), ("aliases", args.aliases)) if path is not None]
    read += [("data", path) for path in data_paths(args.data)]
    return RunDocument(
        schema=SCHEMA,
        command=("roundoff", *args.words),
        inputs=tuple(input_file(role, path) for role, path in read),
        network=network,
        comparison=comparison,
        environment=environment(elapsed_s),
    )


def _write(args: argparse.Namespace, document: "RunDocument", comparison: "Comparison") -> list[Path]:
    from roundoff.core.files import write_text
    from roundoff.report.junit import comparison_junit
    from roundoff.report.run_directory import write_run

    written = [] if args.output is None else list(write_run(document, args.output, force=args.force))
    if args.junit is not None:
        write_text(args.junit, comparison_junit(comparison))
        written.append(args.junit)
    return written + write_html(args, document)


def _print(
    args: argparse.Namespace, terminal: Terminal, document: "RunDocument", comparison: "Comparison"
) -> None:
    from roundoff.cli.next_steps import after_comparison
    from roundoff.core.document import to_json
    from roundoff.messages.catalogue import told
    from roundoff.pages.blocks import View
    from roundoff.pages.terminal import terminal_page, verdict_lines
    from roundoff.report.run_directory import run_files
    from roundoff.studies.compare.page import comparison_page

    if args.json:
        terminal.text(to_json(document))
    elif args.csv:
        terminal.text(run_files(document)["tensors.csv"])
    elif (page := comparison_page(document, View(args.rows, args.sort))) is not None:
        terminal.print(terminal_page(page))
        steps = after_comparison(args) if _calls_for_more(comparison) else []
        if steps:
            labels = [told("compare.next"), *("" for _ in steps[1:])]
            terminal.print(verdict_lines(zip(labels, steps, strict=True)))


def _calls_for_more(comparison: "Comparison") -> bool:
    """Whether a tensor fails or was not judged, or passes with a remark."""
    return comparison.state != "pass" or any(row.difference for row in comparison.rows)
