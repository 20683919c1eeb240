"""The commands on files of tensors and nets: dump and convert."""

import argparse
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.options import DATA, THREADS, command, given, group, opt, refused
from roundoff.cli.terminal import Terminal
from roundoff.messages.message import english, shown
from roundoff.messages.numbers import counted, format_size

if TYPE_CHECKING:
    from roundoff.api.tensors import TensorConversion
    from roundoff.graph.caffe.convert import Imported
    from roundoff.graph.load import Model

_FORMATS = ("npy", "npz", "bin", "ascend-npy")
# So many layers, and tensors, are listed on the terminal.
_SHOWN, _LISTED = 20, 10


@command(
    opt("model MODEL", "the model: .onnx, or .prototxt[,.caffemodel] of Caffe"),
    opt("-o --output DIR", "where the tensors go", required=True),
    opt(
        "--tensors GLOB...",
        "write only tensors whose names match, e.g. '*relu*' (default: all)",
        action="extend",
        default=[],
    ),
    opt("--stats-only", "write the statistics of each tensor, not its values"),
    opt("--format", "how tensors are stored (default: npy)", choices=_FORMATS),
    opt("--force", "replace what an earlier dump wrote to DIR"),
    opt("--json", "print the result as JSON"),
    group(
        "limits",
        opt("--max-disk SIZE", "refuse to write more, e.g. 20GB (default: the free space)"),
        opt(
            "--max-memory SIZE",
            "memory to stay within, in several passes if need be, e.g. 2GiB (default: most of the free memory)",
        ),
        THREADS,
    ),
    DATA,
)
def dump(args: argparse.Namespace, terminal: Terminal) -> int:
    """Run a model and write every tensor it computes, or their statistics.

    The model runs in onnxruntime on the CPU with graph optimization off, one
    sample at a time. Weights are not written. DIR appears only once it is
    complete: with tensors.json, which lists the files, or with stats.csv and
    stats.json.
    """
    from roundoff.api.tensors import MAP_NAME, STATS_NAME, STATS_TABLE_NAME, dump
    from roundoff.messages.message import sanitize_for_display
    from roundoff.report.statistics import statistics_json, statistics_table

    outcome = dump(**given(args, terminal, "output", "force"), tell=terminal.note)
    found = outcome.result
    if args.stats_only:
        if args.json:
            terminal.text(statistics_json(found.statistics))
        else:
            terminal.print(statistics_table(sanitize_for_display(found.statistics)))
        terminal.written([args.output / STATS_TABLE_NAME, args.output / STATS_NAME])
        return outcome.exit_code
    listed = args.output / MAP_NAME
    if args.json:
        result = {
            "output": str(args.output),
            "map": str(listed),
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
    terminal.note(english("written: {output}, which lists all files", output=listed))
    return outcome.exit_code


def _shape_wanted(text: str) -> tuple[int, ...]:
    """Sizes with commas, or with x between them as other options have them."""
    if not re.fullmatch(r"\d{1,18}(,\d{1,18})*|\d{1,18}(x\d{1,18})*", text):
        raise refused("{text!r} is no shape; write it as 1,3,224,224", text=text)
    return tuple(map(int, text.replace("x", ",").split(",")))


def _input_shapes(text: str) -> dict[str, tuple[int, ...]]:
    """Shapes by input, as on the command line."""
    found = {}
    for part in text.split(";"):
        name, colon, sizes = part.strip().rpartition(":")
        if bool(colon) != bool(name) or (not name and ";" in text):
            raise refused("{text!r} is no shape of an input; write it as data:1,3,224,224", text=part.strip())
        found[name] = _shape_wanted(sizes)
    return found


@command(
    opt("source SOURCE", "a model (.prototxt, .tflite, .xml), or a file or folder of tensors"),
    opt(
        "weights CAFFEMODEL?",
        "the net's numbers (default: the file of the same name, or the only .caffemodel beside the net)",
        type=Path,
    ),
    opt("-o --output PATH", "the .onnx file, or the folder, to write", required=True),
    opt("--force", "replace PATH"),
    opt("--json", "print what was done as JSON"),
    group(
        "nets",
        opt(
            "--input-shape SHAPES",
            "shapes of inputs instead of those in the .prototxt, e.g. 'data:1,3,500,500;im_info:1,3', or "
            "1,3,500,500 for the only one",
            type=_input_shapes,
        ),
        opt("--random-weights", "draw the numbers of a net that has no .caffemodel, to try its layers"),
    ),
    group(
        "tensor files",
        opt("--to", "how tensors are stored (default: npy)", choices=_FORMATS),
        opt(
            "--format NAME",
            "memory format of device dumps, such as NCHW, NHWC or ND (default: as before the compiler)",
            dest="layout",
        ),
        opt("--shape 1,3,..", "shape of FRACTAL_NZ tensors, with --format", type=_shape_wanted),
    ),
)
def convert(args: argparse.Namespace, terminal: Terminal) -> int:
    """Convert a model to ONNX, or tensor files to others.

    Layers of a Caffe net become nodes of the same names, blobs tensors of the same
    names. Where layers work in place, the last version of a blob has its name, and
    those before it are called BLOB#LAYER. Layers that serve training are left out
    and listed. All other commands take Caffe nets, .tflite and .xml as they are.

    Tensor files may be of any kind that can be compared, dumps of devices among
    them, whose tensors come out in the layout they had before the compiler.
    """
    from roundoff.api.tensors import TensorConversion, convert
    from roundoff.graph.load import Model

    outcome = convert(**given(args, terminal, "output", "force"))
    found = outcome.result
    if isinstance(found, TensorConversion):
        _print_conversion(args, terminal, found)
        return outcome.exit_code
    model, net = (found, None) if isinstance(found, Model) else (found.model, found)
    if args.json:
        terminal.text(json.dumps(_described(args, model, net), indent=1, ensure_ascii=False))
    else:
        _print_model(args, terminal, model, net)
    terminal.written([args.output])
    return outcome.exit_code


def _described(args: argparse.Namespace, model: "Model", net: "Imported | None") -> dict[str, object]:
    graph, dropped = model.proto.graph, () if net is None else net.dropped
    return {
        "output": str(args.output),
        "nodes": len(graph.node),
        **({} if net is None else {"layers": len(net.net.layers)}),
        "inputs": {value.name: _shape(value) for value in graph.input},
        "outputs": [value.name for value in graph.output],
        "dropped": [{"name": each.name, "type": each.type, "why": each.why} for each in dropped],
        "notes": [] if net is None else list(net.notes),
    }


def _shape(value: object) -> list[int | str]:
    dims = value.type.tensor_type.shape.dim  # type: ignore[attr-defined]
    return [dim.dim_param or dim.dim_value for dim in dims]


def _print_model(args: argparse.Namespace, terminal: Terminal, model: "Model", net: "Imported | None") -> None:
    graph, size = model.proto.graph, format_size(model.file_bytes)
    if net is None:
        written = english(
            "{output}: {nodes} {nodes:node|nodes}, {size}", output=args.output, nodes=len(graph.node), size=size
        )
    else:
        written = english(
            "{output}: {layers} {layers:layer|layers} as {nodes} {nodes:node|nodes}, {size}",
            output=args.output,
            layers=len(net.net.layers),
            nodes=len(graph.node),
            size=size,
        )
    terminal.text(shown(written))
    for value in graph.input:
        shape = "x".join(map(str, _shape(value)))
        terminal.text(shown(english("  input   {name}: {shape}", name=value.name, shape=shape)))
    for value in graph.output:
        terminal.text(shown(english("  output  {name}", name=value.name)))
    if net is None:
        return
    for each in net.dropped[:_SHOWN]:
        dropped = english("  dropped {name} ({type}): {why}", name=each.name, type=each.type, why=each.why)
        terminal.text(shown(dropped))
    if len(net.dropped) > _SHOWN:
        more = english("  dropped {count} more; --json lists them all", count=len(net.dropped) - _SHOWN)
        terminal.text(shown(more))
    for note in net.notes:
        terminal.note(note)


def _print_conversion(args: argparse.Namespace, terminal: Terminal, found: "TensorConversion") -> None:
    """Tell what was written, and what could not be read."""
    from roundoff.api.tensors import MAP_NAME

    if args.layout is not None:
        _print_layout(args, terminal, found)
        return
    if args.json:
        record = {
            "output": str(args.output),
            "format": found.format,
            "tensors": found.tensors,
            "samples": list(found.samples),
            "size_bytes": found.size_bytes,
            "failed": dict(found.failed),
        }
        terminal.text(json.dumps(record, indent=1, ensure_ascii=False))
    else:
        written = english(
            "{output}: {arrays} {arrays:array|arrays} of {tensors} {tensors:tensor|tensors}, {size}, as {format}",
            output=args.output,
            arrays=found.tensors,
            tensors=found.known,
            size=format_size(found.size_bytes),
            format=found.format,
        )
        terminal.text(shown(written))
    for name, problem in list(found.failed.items())[:_LISTED]:
        terminal.note(english("left out: tensor {name!r}, because {problem}", name=name, problem=problem))
    if len(found.failed) > _LISTED:
        terminal.note(
            english("left out: {number} more; --json lists them all", number=len(found.failed) - _LISTED)
        )
    terminal.note(english("written: {output}, which lists all files", output=args.output / MAP_NAME))


def _print_layout(args: argparse.Namespace, terminal: Terminal, found: "TensorConversion") -> None:
    from roundoff.vendors.ascend.layouts import FAILED_NAME

    record = {"format": found.format, "files": list(found.files), "failed": list(found.failed)}
    listing = json.dumps(record, indent=1, ensure_ascii=False)
    terminal.text(listing if args.json else f"{args.output}: {counted(found.tensors, 'tensor')} in {found.format}")
    for text in found.notes[:_LISTED]:
        terminal.note(text)
    if found.failed:
        terminal.note(
            english(
                "{count} {count:file|files} failed, listed in {output}",
                count=len(found.failed),
                output=args.output / FAILED_NAME,
            )
        )
