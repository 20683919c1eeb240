"""Convert a Caffe net to an ONNX model, or tensor files to others.

Layers become nodes of the same names, blobs tensors of the same names. Where
layers work in place, the last version of a blob has its name, and those
before it are called BLOB#LAYER. Layers that serve training are left out and
listed. All other commands take Caffe nets as they are.

Tensor files may be of any kind that can be compared, dumps of devices among
them, whose tensors come out in the layout they had before the compiler.
"""

import argparse
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.terminal import Terminal
from roundoff.messages.message import english, shown
from roundoff.messages.numbers import counted, format_size

if TYPE_CHECKING:
    from roundoff.api.tensors import TensorConversion
    from roundoff.graph.caffe.convert import Imported

__all__ = [
    "print_conversion",
    "shape",
]

_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "source", type=Path, metavar="SOURCE", help="a net (.prototxt), or a file or folder of tensors"
    )
    parser.add_argument(
        "weights",
        type=Path,
        nargs="?",
        metavar="CAFFEMODEL",
        help="the net's numbers (default: the file of the same name, or the only .caffemodel beside the net)",
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="PATH", help="the .onnx file, or the folder, to write"
    )
    parser.add_argument("--force", action="store_true", help="replace PATH")
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")
    tensors = parser.add_argument_group("tensor files")
    tensors.add_argument(
        "--to", choices=("npy", "npz", "bin", "ascend-npy"), help="how tensors are stored (default: npy)"
    )
    tensors.add_argument(
        "--format",
        dest="layout",
        metavar="NAME",
        help="memory format of device dumps, such as NCHW, NHWC or ND (default: as before the compiler)",
    )
    tensors.add_argument(
        "--shape", type=shape, metavar="1,3,..", help="shape of FRACTAL_NZ tensors, with --format"
    )


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Convert, write, print."""
    from roundoff.api.tensors import TensorConversion, convert

    outcome = convert(
        args.source,
        args.output,
        weights=args.weights,
        to=args.to,
        layout=args.layout,
        shape=args.shape,
        force=args.force,
        progress=terminal,
    )
    found = outcome.result
    if isinstance(found, TensorConversion):
        print_conversion(args, terminal, found)
        return outcome.exit_code
    if args.json:
        terminal.text(json.dumps(_described(args, found), indent=1, ensure_ascii=False))
    else:
        _print(args, terminal, found)
    terminal.written([args.output])
    return outcome.exit_code


def _described(args: argparse.Namespace, imported: "Imported") -> dict[str, object]:
    graph = imported.model.proto.graph
    return {
        "output": str(args.output),
        "nodes": len(graph.node),
        "layers": len(imported.net.layers),
        "inputs": {value.name: _shape(value) for value in graph.input},
        "outputs": [value.name for value in graph.output],
        "dropped": [{"name": each.name, "type": each.type, "why": each.why} for each in imported.dropped],
        "notes": list(imported.notes),
    }


def _shape(value: object) -> list[int | str]:
    dims = value.type.tensor_type.shape.dim  # type: ignore[attr-defined]
    return [dim.dim_param or dim.dim_value for dim in dims]


def _print(args: argparse.Namespace, terminal: Terminal, imported: "Imported") -> None:
    graph = imported.model.proto.graph
    size = format_size(imported.model.file_bytes)
    written = english(
        "{output}: {layers} {layers:layer|layers} as {nodes} {nodes:node|nodes}, {size}",
        output=args.output,
        layers=len(imported.net.layers),
        nodes=len(graph.node),
        size=size,
    )
    terminal.text(shown(written))
    for value in graph.input:
        terminal.text(f"  input   {value.name}: {'x'.join(map(str, _shape(value)))}")
    for value in graph.output:
        terminal.text(f"  output  {value.name}")
    for each in imported.dropped[:_SHOWN]:
        terminal.text(f"  dropped {each.name} ({each.type}): {each.why}")
    if len(imported.dropped) > _SHOWN:
        terminal.text(f"  dropped {len(imported.dropped) - _SHOWN} more; --json lists them all")
    for note in imported.notes:
        terminal.note(note)


MAP_NAME = "tensors.json"
_LISTED = 10


def print_conversion(args: argparse.Namespace, terminal: Terminal, found: "TensorConversion") -> None:
    """Tell what was written, and what could not be read."""
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
    from roundoff.vendors.ascend.conversion import FAILED_NAME

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


def shape(text: str) -> tuple[int, ...]:
    """Sizes with commas, as on the command line."""
    if not re.fullmatch(r"\d{1,18}(,\d{1,18})*", text):
        raise argparse.ArgumentTypeError(english("{text!r} is no shape; write it as 1,3,224,224", text=text))
    return tuple(map(int, text.split(",")))
