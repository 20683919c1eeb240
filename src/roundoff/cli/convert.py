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
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.convert_tensors import print_conversion, shape
from roundoff.cli.terminal import Terminal

if TYPE_CHECKING:
    from roundoff.graph.caffe.convert import Imported

SUMMARY = "make an ONNX model of a Caffe net, or other files of tensors"

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
    from roundoff.messages.numbers import counted, format_size

    graph = imported.model.proto.graph
    size = format_size(imported.model.file_bytes)
    layers, nodes = counted(len(imported.net.layers), "layer"), counted(len(graph.node), "node")
    terminal.text(f"{args.output}: {layers} as {nodes}, {size}")
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
