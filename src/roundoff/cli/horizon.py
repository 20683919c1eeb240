"""Horizon's hmct-debugger: its sub-commands and flags."""

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from roundoff.cli.options import Command, Option, command, opt, refused, subcommand, vendor_options
from roundoff.cli.parser import CommandParser
from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_OK, BadInput
from roundoff.messages.message import english

if TYPE_CHECKING:
    from roundoff.core.names import NameList

_METRICS = "cosine-similarity, mse, mre, sqnr or chebyshev"
_NOTHING = frozenset({"none", "null", ""})
_FOLDER = "./debug_result/"


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
        raise refused("{what} {fix}", what=error.what, fix=error.fix) from error


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
        raise refused("{text!r} is neither True nor False", text=text)
    return words[text.strip().casefold()]


def _number(text: str) -> int | None:
    if text.strip().casefold() in _NOTHING:
        return None
    try:
        return int(text)
    except ValueError:
        raise refused("{text!r} is neither a whole number nor None", text=text) from None


def _decimal(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise refused("{text!r} is not a number", text=text) from None


# Sub-commands --------------------------------------------------------------------------------------------------


def _flagged(short: str, name: str, read: Callable[[str], Any], default: Any, what: str, **more: Any) -> Option:
    """A flag by its short name and its long one, which may be spelled with dashes, too."""
    spelled = " ".join(dict.fromkeys((short, f"--{name}", f"--{name.replace('_', '-')}")))
    return opt(f"{spelled} VALUE", what, dest=name, type=read, default=default, **more)


def _save(short: str = "-s", default: str | None = _FOLDER) -> Option:
    return _flagged(short, "save_dir", str, default, f"folder for results (default: {default})")


def _average(short: str = "-a") -> Option:
    return _flagged(short, "average_mode", _flag, False, "True: each value is the mean of all up to it")


def _metric(short: str, name: str = "metric") -> Option:
    return _flagged(short, name, _one_or_more, "cosine-similarity", f"{_METRICS} (default: the first)")


def _only(short: str) -> Option:
    return _flagged(short, "quantize_node", _names, None, "a curve for each entry, with only that quantized")


def _but(short: str) -> Option:
    return _flagged(
        short, "non_quantize_node", _names, None, "a curve for each entry, with all but that quantized"
    )


def _data_num(short: str) -> Option:
    return _flagged(short, "data_num", _number, 1, "samples to use, None for all (default: 1)")


def _axis() -> Option:
    return _flagged("-a", "axis", _number, None, "axis of the channels (default: 1; of weights their own)")


def _verbose() -> Option:
    return _flagged("-v", "verbose", _flag, True, "False: do not print the table")


def _sensitive(short: str) -> Option:
    return _flagged(short, "sensitive_nodes", _names, None, "switch these instead of those that are picked")


def _threshold(short: str) -> Option:
    return _flagged(short, "pick_threshold", _decimal, 0.999, "scores of nodes that are picked (default: 0.999)")


def _nodes(name: str = "nodes_list") -> Option:
    return _flagged("-n", name, _names, None, "names of nodes, as [a,b]", required=True)


def _interested() -> Option:
    return _flagged("-i", "interested_nodes", _names, None, "only these; lists in the list are measured together")


def _output() -> Option:
    return _flagged("-o", "output_node", _one_or_more, None, "compare at this node instead of the outputs")


def _node_type(short: str, default: str | None) -> Option:
    return _flagged(
        short, "node_type", str, default, f"node, weight or activation (default: {default or 'both last'})"
    )


def _sub(summary: str, flags: tuple[Option, ...], data: str = "calibrated_data") -> Command:
    """A sub-command: what it does, its flags, and what its second argument is called in Python."""
    places = (
        opt("model_or_file MODEL", "the calibrated model", type=str),
        opt(f"{data} DATA", "folder of calibration data, <input>/0.npy ..."),
    )
    return Command(summary, (*places, *flags), _run)


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Call the function of the sub-command."""
    import roundoff.vendors.horizon as functions
    from roundoff.vendors.facade import reporting_to

    said = {name: value for name, value in vars(args).items() if name not in ("execute", "parser")}
    with reporting_to(terminal):
        getattr(functions, args.parser.prog.split()[-1].replace("-", "_"))(**said)
    if said.get("save_dir") is not None:
        terminal.note(english("written: {folder}", folder=args.save_dir))
    return EXIT_OK


_SUBCOMMANDS: dict[str, Command] = {
    "get-sensitivity-of-nodes": _sub(
        "Rank nodes by what quantizing each of them alone does to the outputs.",
        (
            _metric("-m", "metrics"), _output(), _node_type("-n", "node"), _data_num("-d"), _verbose(),
            _interested(), _save(default=None),
        ),
    ),
    "plot-acc-error": _sub(
        "Draw how error accumulates along the network.",
        (_save(), _only("-q"), _but("-nq"), _metric("-m"), _average()),
    ),
    "plot-distribution": _sub("Draw histograms of values.", (_save(), _nodes())),
    "get-channelwise-data-distribution": _sub(
        "Draw boxes of the values of each channel.", (_save(), _nodes(), _axis())
    ),
    "sensitivity-analysis": _sub(
        "Measure the outputs with the sensitive nodes in another type.",
        (
            _metric("-m"), _threshold("-p"), _data_num("-d"), _sensitive("-sn"),
            _flagged("-q", "qtype", str, "float32", "what they become: float32 or int16 (default: float32)"),
            _save("-sd"),
        ),
    ),
    "tensor-analysis": _sub(
        "Describe tensors and their quantizers.",
        (
            _nodes("node_names"), _save(),
            _flagged("-np", "num_processes", _number, 16, "threads to use at most (default: 16)"),
        ),
        data="calibration_data",
    ),
    "runall": _sub(
        "Rank weights and activations, draw the worst, the curves, and switch sensitive nodes.",
        (
            _save(), _metric("-nm", "ns_metrics"), _output(), _node_type("-nt", None), _data_num("-dn"),
            _verbose(), _interested(),
            _flagged("-dnl", "dis_nodes_list", _names, None, "histograms of these (default: the worst five)"),
            _flagged("-cn", "cw_nodes_list", _names, None, "channels of these (default: the same)"),
            _axis(), _only("-qn"), _but("-nqn"), _metric("-am", "ae_metric"), _average("-avm"),
            _threshold("-pt"), _sensitive("-sn"),
        ),
    ),
}  # fmt: skip


@command(vendor_options(_SUBCOMMANDS, "its model, data and flags"))
def horizon(args: argparse.Namespace, terminal: Terminal) -> int:
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
    name = args.sub.replace("_", "-")
    lists = "Lists are written [a,b], ['a','b'] or [[a,b],[c]]; switches take True or False."
    parser = CommandParser(prog=f"roundoff horizon {name}", epilog=lists, allow_abbrev=False)
    found = parser.taught(subcommand(name, _SUBCOMMANDS), join_lists(args.rest))
    return int(found.execute(found, terminal))
