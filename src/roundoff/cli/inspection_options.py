"""Options of the commands that look at tensors by name, shared by them.

Loaded for every --help, so it imports the standard library alone until they are read.
"""

import argparse
from pathlib import Path

from roundoff.cli.data_options import add_data_options
from roundoff.cli.subject import add_subject_options
from roundoff.cli.values import positive, size, threads
from roundoff.core.files import is_model
from roundoff.errors import BadInput

__all__ = [
    "KINDS",
    "add_inspection_options",
    "add_limits",
    "names_from",
    "rows",
]

KINDS = ("weight", "bias", "constant", "activation", "node")


def add_inspection_options(parser: argparse.ArgumentParser, *, names: str) -> None:
    """Declare what is looked at and what it is fed; where results go is the command's.

    Args:
        parser: Of the command.
        names: What the names say, for the help.
    """
    add_subject_options(parser, required=False)
    parser.add_argument("nodes", nargs="*", metavar="NODE", help=names)
    parser.set_defaults(more_words="nodes")
    parser.add_argument(
        "--kind",
        action="append",
        choices=KINDS,
        default=[],
        help="look only at these: quantized weights or biases, other constants, inputs of activation quantizers, "
        "outputs of nodes; may be repeated",
    )
    add_data_options(parser)


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Declare memory and threads."""
    group = parser.add_argument_group("limits")
    group.add_argument(
        "--max-memory", type=size, metavar="SIZE", help="memory to stay within, in several passes if need be"
    )
    group.add_argument("--threads", type=threads, metavar="N", help="threads to use (default: all cores)")


def names_from(args: argparse.Namespace) -> tuple[str, ...]:
    """The names; a first word that is no file is one of them where the model is named by --quantized.

    Raises:
        BadInput: There are none.
    """
    model: Path | None = args.model
    if model is not None and args.quantized is not None and not model.exists() and not is_model(model):
        args.nodes.insert(0, str(model))
        args.model = None
    if not args.nodes:
        raise BadInput(
            "No node, tensor or quantizer was named.", fix="name some behind the model; '*' for all nodes"
        )
    return tuple(args.nodes)


def rows(text: str) -> int | None:
    """A number of rows to show, or all."""
    return None if text == "all" else positive(text)
