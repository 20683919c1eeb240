"""Horizon's hmct-debugger: its sub-commands, flags, files and tables, anywhere.

  roundoff horizon get-sensitivity-of-nodes MODEL DATA -n weight -v True
  roundoff horizon plot-acc-error MODEL DATA -q ['weight','activation']
  roundoff horizon plot-distribution MODEL DATA -n [Conv_3,w_HzCalibration]
  roundoff horizon get-channelwise-data-distribution MODEL DATA -n [...]
  roundoff horizon sensitivity-analysis MODEL DATA -p 0.999
  roundoff horizon tensor-analysis MODEL DATA -n [...]
  roundoff horizon runall MODEL DATA -s ./debug_result

MODEL is a *_calibrated_model.onnx, or any model with QuantizeLinear nodes;
DATA is the folder of calibration data. 'roundoff horizon SUB -h' lists flags.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roundoff.cli.parser import CommandParser
from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_OK, BadInput, nearest
from roundoff.messages.message import english

if TYPE_CHECKING:
    from roundoff.core.names import NameList

_METRICS = "cosine-similarity, mse, mre, sqnr or chebyshev"
_NOTHING = frozenset({"none", "null", ""})
_FOLDER = "./debug_result/"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sub-command and what follows it, which is read in Horizon's way."""
    parser.add_argument("sub", metavar="SUB", help=f"one of: {', '.join(_SUBCOMMANDS)}")
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="its model, data and flags")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Run one sub-command."""
    name = args.sub.replace("_", "-")
    if name not in _SUBCOMMANDS:
        raise BadInput(english("There is no sub-command {sub!r}.", sub=args.sub), fix=nearest(name, _SUBCOMMANDS))
    found = vars(_parser(name).parse_args(join_lists(args.rest)))
    import roundoff.vendors.horizon as functions
    from roundoff.vendors.facade import reporting_to

    with reporting_to(terminal):
        getattr(functions, name.replace("-", "_"))(**found)
    folder = found.get("save_dir")
    if folder is not None:
        terminal.note(english("written: {folder}", folder=folder))
    return EXIT_OK


def join_lists(words: Sequence[str]) -> list[str]:
    """Put lists together that the shell has split at blanks: ``[weight,`` and ``activation]``."""
    found: list[str] = []
    depth = 0
    for word in words:
        if depth > 0:
            found[-1] += f" {word}"
        else:
            found.append(word)
        # Only a word that begins like a list opens one; names may hold brackets.
        if depth > 0 or word.startswith(("[", "'[", '"[')):
            depth += word.count("[") - word.count("]")
    return found


# Values --------------------------------------------------------------------------------------------------------


def _parsed(text: str) -> "NameList":
    from roundoff.core.names import parse_name_list

    try:
        return parse_name_list(text.strip().strip("\"'") if text.strip()[:2] in ('"[', "'[") else text)
    except BadInput as error:
        raise argparse.ArgumentTypeError(english("{what} {fix}", what=error.what, fix=error.fix)) from error


def _names(text: str) -> list[Any] | None:
    """Names, or lists of names."""
    if text.strip().casefold() in _NOTHING:
        return None
    return [entry if isinstance(entry, str) else list(entry) for entry in _parsed(text)]


def _one_or_more(text: str) -> str | list[Any] | None:
    """A single name by itself, several as a list."""
    found = _names(text)
    return found[0] if found is not None and len(found) == 1 else found


def _flag(text: str) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.strip().casefold() not in words:
        raise argparse.ArgumentTypeError(english("{text!r} is neither True nor False", text=text))
    return words[text.strip().casefold()]


def _number(text: str) -> int | None:
    if text.strip().casefold() in _NOTHING:
        return None
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            english("{text!r} is neither a whole number nor None", text=text)
        ) from None


def _decimal(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(english("{text!r} is not a number", text=text)) from None


# Sub-commands --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Flag:
    """One flag: its short and long names, how its value is read, its default, what it says."""

    short: str
    name: str
    read: Callable[[str], Any]
    default: Any
    help: str
    required: bool = False


@dataclass(frozen=True)
class _Subcommand:
    """A sub-command: what it does, its flags, and what its second argument is called in Python."""

    summary: str
    flags: tuple[_Flag, ...]
    data: str = "calibrated_data"


def _save(short: str = "-s", default: str | None = _FOLDER) -> _Flag:
    return _Flag(short, "save_dir", str, default, f"folder for results (default: {default})")


def _average(short: str = "-a") -> _Flag:
    return _Flag(short, "average_mode", _flag, False, "True: each value is the mean of all up to it")


def _metric(short: str, name: str = "metric") -> _Flag:
    return _Flag(short, name, _one_or_more, "cosine-similarity", f"{_METRICS} (default: the first)")


def _only(short: str) -> _Flag:
    return _Flag(short, "quantize_node", _names, None, "a curve for each entry, with only that quantized")


def _but(short: str) -> _Flag:
    return _Flag(short, "non_quantize_node", _names, None, "a curve for each entry, with all but that quantized")


def _data_num(short: str) -> _Flag:
    return _Flag(short, "data_num", _number, 1, "samples to use, None for all (default: 1)")


def _axis() -> _Flag:
    return _Flag("-a", "axis", _number, None, "axis of the channels (default: 1; of weights their own)")


def _verbose() -> _Flag:
    return _Flag("-v", "verbose", _flag, True, "False: do not print the table")


def _sensitive(short: str) -> _Flag:
    return _Flag(short, "sensitive_nodes", _names, None, "switch these instead of those that are picked")


def _threshold(short: str) -> _Flag:
    return _Flag(short, "pick_threshold", _decimal, 0.999, "scores of nodes that are picked (default: 0.999)")


def _nodes(name: str = "nodes_list") -> _Flag:
    return _Flag("-n", name, _names, None, "names of nodes, as [a,b]", required=True)


def _interested() -> _Flag:
    return _Flag("-i", "interested_nodes", _names, None, "only these; lists in the list are measured together")


def _output() -> _Flag:
    return _Flag("-o", "output_node", _one_or_more, None, "compare at this node instead of the outputs")


def _node_type(short: str, default: str | None) -> _Flag:
    return _Flag(
        short, "node_type", str, default, f"node, weight or activation (default: {default or 'both last'})"
    )


_SUBCOMMANDS: dict[str, _Subcommand] = {
    "get-sensitivity-of-nodes": _Subcommand(
        "Rank nodes by what quantizing each of them alone does to the outputs.",
        (
            _metric("-m", "metrics"), _output(), _node_type("-n", "node"), _data_num("-d"), _verbose(),
            _interested(), _save(default=None),
        ),
    ),
    "plot-acc-error": _Subcommand(
        "Draw how error accumulates along the network.",
        (_save(), _only("-q"), _but("-nq"), _metric("-m"), _average()),
    ),
    "plot-distribution": _Subcommand("Draw histograms of values.", (_save(), _nodes())),
    "get-channelwise-data-distribution": _Subcommand(
        "Draw boxes of the values of each channel.", (_save(), _nodes(), _axis())
    ),
    "sensitivity-analysis": _Subcommand(
        "Measure the outputs with the sensitive nodes in another type.",
        (
            _metric("-m"), _threshold("-p"), _data_num("-d"), _sensitive("-sn"),
            _Flag("-q", "qtype", str, "float32", "what they become: float32 or int16 (default: float32)"),
            _save("-sd"),
        ),
    ),
    "tensor-analysis": _Subcommand(
        "Describe tensors and their quantizers.",
        (
            _nodes("node_names"), _save(),
            _Flag("-np", "num_processes", _number, 16, "threads to use at most (default: 16)"),
        ),
        data="calibration_data",
    ),
    "runall": _Subcommand(
        "Rank weights and activations, draw the worst, the curves, and switch sensitive nodes.",
        (
            _save(), _metric("-nm", "ns_metrics"), _output(), _node_type("-nt", None), _data_num("-dn"),
            _verbose(), _interested(),
            _Flag("-dnl", "dis_nodes_list", _names, None, "histograms of these (default: the worst five)"),
            _Flag("-cn", "cw_nodes_list", _names, None, "channels of these (default: the same)"),
            _axis(), _only("-qn"), _but("-nqn"), _metric("-am", "ae_metric"), _average("-avm"),
            _threshold("-pt"), _sensitive("-sn"),
        ),
    ),
}  # fmt: skip


def _parser(name: str) -> argparse.ArgumentParser:
    command = _SUBCOMMANDS[name]
    parser = CommandParser(
        prog=f"roundoff horizon {name}",
        description=command.summary,
        epilog="Lists are written [a,b], ['a','b'] or [[a,b],[c]]; switches take True or False.",
        allow_abbrev=False,
    )
    parser.add_argument("model_or_file", metavar="MODEL", help="the calibrated model")
    parser.add_argument(command.data, metavar="DATA", help="folder of calibration data, <input>/0.npy ...")
    for flag in command.flags:
        long = f"--{flag.name}"
        parser.add_argument(
            flag.short,
            *dict.fromkeys((long, f"--{flag.name.replace('_', '-')}")),
            dest=flag.name,
            type=flag.read,
            default=flag.default,
            required=flag.required,
            metavar="VALUE",
            help=flag.help,
        )
    return parser
