"""The command line: parse, call the public function, print. A command is a function declared with its options."""

import argparse
import errno
import importlib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from roundoff import __version__
from roundoff.cli.options import LEAVE_OUT, PROJECT_NAME, Command
from roundoff.cli.parser import (
    CommandParser,
    add_language_option,
    chosen_command,
    chosen_language,
    help_formatter,
    in_groups,
    translated_argparse,
    with_language_first,
    without_language,
)
from roundoff.cli.terminal import Terminal, interrupt_on_terminate, warnings_as_notes
from roundoff.core.files import joined_pairs
from roundoff.errors import EXIT_INTERRUPTED, BadInput, RoundoffError, on_the_command_line
from roundoff.messages.catalogue import translate, use_language
from roundoff.messages.message import english

__all__ = ["COMMANDS", "GROUPS", "command_of", "main", "parse_words"]

# In the order a newcomer would want them. Only the module of the command that is run is loaded.
GROUPS = {
    "what is wrong": {
        "diagnose": "find out which nodes lose accuracy, why, and what helps",
        "compare": "which tensors of two runs differ, how, and where it started",
        "check-io": "is the deployed model fed what it was trained with, and if not, why",
        "check-calibration": "say whether samples are fit for calibration",
        "audit": "requested and effective precision of every node of a quantized model",
    },
    "quantize, repair": {
        "quantize": "make a quantized model for a target chip",
        "transform": "smooth, equalize, correct or round, and see what it brings",
        "tune": "search for the cheapest quantized model that meets a goal",
        "export-settings": "write a quantization as settings of onnxruntime, Pulsar2, Horizon, ...",
        "targets": "list the chips to quantize for, or show one",
    },
    "look closer": {
        "layers": "show what quantization costs each layer, and where it begins",
        "sensitivity": "rank nodes, weights, activations by what each does to outputs",
        "accumulate": "show how error grows along a network, and whose it is",
        "partial": "find how few nodes must stay in float or need 16 bits",
        "distribution": "show histograms, clipping and levels of weights and activations",
        "channels": "show how channels differ, and the risk of one scale for all",
        "outliers": "count the channels that outliers leave few levels",
        "samples": "find the samples that quantization hurts most",
        "explain": "what a node, finding, metric or word means, in one paragraph",
    },
    "runs, reports": {
        "report": "write a run as one HTML file, or as Markdown, CSV or JUnit",
        "serve": "browse the runs of a folder on this machine",
        "diff": "which nodes got better or worse between two runs",
        "gate": "fail when a run is worse than its baseline, for CI",
        "suite": "many models on many chips every night, on one machine or many",
        "reproduce": "cut the smallest case that shows a fault out of the model",
        "bundle": "pack the fault that a run found into a ticket for others",
        "mcp": "offer what it finds to an assistant, over stdio (Model Context Protocol)",
    },
    "models, tensors": {
        "dump": "run a model and write every tensor it computes, or statistics",
        "convert": "make an ONNX model of a Caffe net, .tflite or .xml, or other files of tensors",
    },
    "vendors' tools": {
        "ascend": "Ascend's msaccucmp: its sub-commands, flags and files",
        "horizon": "Horizon's hmct-debugger: its sub-commands and flags",
        "amct": "Ascend's AMCT: calibration, auto-calibration, convert",
        "pulsar2": "Axera's Pulsar2: build, tune, run",
    },
    "begin": {
        "demo": "a small network that goes wrong, and how it is found and repaired",
        "init": "write roundoff.toml, so that commands here need not be told things again",
        "completion": "print a script by which a shell completes commands and options",
        "self-check": "show how this machine computes with integers",
    },
}
"""Each command with what it does in a line, by what people want."""

COMMANDS = {name: what for group in GROUPS.values() for name, what in group.items()}
"""All of them."""

_MODULES = {
    "diagnosis": ("diagnose", "compare"),
    "studies": (
        "layers", "sensitivity", "accumulate", "partial", "distribution", "channels", "outliers", "samples",
        "audit", "check-io", "check-calibration", "self-check",
    ),
    "quantization": ("quantize", "transform", "tune", "export-settings", "targets"),
    "runs": ("report", "diff", "gate", "explain", "serve", "mcp", "reproduce", "bundle"),
    "tensors": ("dump", "convert"),
    "project": ("init", "demo", "completion"),
}  # fmt: skip
"""Where commands are that have no module of their own name."""

SHOW_TRACEBACK = "ROUNDOFF_TRACEBACK"
"""Set to anything, what nobody foresaw ends in Python's words, for who looks for the fault."""
_MOST_SHOWN = 200
_EXIT_CODES = """\
Exit codes: 0 fine, 1 threshold missed, 2 bad input, 3 cannot align,
4 the model failed to run, 130 interrupted."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        argv: Words after the program's name; the process's own by default.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    if argv is None:
        _prepare_process()
    try:
        language = chosen_language(words)
    except BadInput as error:
        Terminal().error(error)
        return error.exit_code
    with use_language(language):
        terminal = Terminal()
        if not without_language(words):
            from roundoff.cli.project import begin

            return begin(terminal, ask=sys.stdin.isatty() and sys.stderr.isatty())
        try:
            words = _with_project(words, terminal)
        except BadInput as error:
            terminal.error(error)
            return error.exit_code
        with on_the_command_line(without_language(words)):
            return _run(words, terminal, leave=argv is None)


def _with_project(words: list[str], terminal: Terminal) -> list[str]:
    """Words with what the project of this folder adds; it says what that is.

    Raises:
        BadInput: The project's file cannot be used.
    """
    name = chosen_command(words)
    if name not in COMMANDS or not (LEAVE_OUT in words or Path(PROJECT_NAME).is_file()):
        return words
    from roundoff.cli.project import tell_taken, with_project

    # The language is no word of the command's, wherever it stands.
    filled, taken = with_project(with_language_first(joined_pairs(words)), str(name), command_of(str(name)))
    tell_taken(terminal, taken)
    return filled


def _run(words: list[str], terminal: Terminal, *, leave: bool) -> int:
    """Run one command and return its exit code.

    Args:
        words: After the program's name.
        terminal: Where it prints.
        leave: End the process when interrupted.
    """
    arguments: argparse.Namespace | None = None
    try:
        arguments = parse_words(words)
        if arguments is None:
            return BadInput.exit_code
        arguments.words = without_language(words)
        with warnings_as_notes(terminal), terminal.watched(_output_folder(arguments)):
            return int(arguments.execute(arguments, terminal))
    except RoundoffError as error:
        terminal.finish()
        terminal.error(error)
        return error.exit_code
    except KeyboardInterrupt:
        terminal.finish()
        terminal.note(translate("terminal.interrupted"))
        if leave:
            _leave(EXIT_INTERRUPTED)
        return EXIT_INTERRUPTED
    except Exception as error:
        starved = _lacks_memory(error)
        if os.environ.get(SHOW_TRACEBACK) and not starved:
            raise
        terminal.finish()
        if not starved:
            # Whatever no reader foresaw came with a file that somebody gave.
            terminal.error(_unforeseen(error))
            return BadInput.exit_code
        limited = arguments is not None and "max_memory" in arguments
        fix = translate("terminal.less_memory") if limited else translate("terminal.more_memory")
        terminal.error(RoundoffError(translate("terminal.no_memory"), fix=fix))
        return RoundoffError.exit_code
    finally:
        terminal.finish()


def _lacks_memory(error: Exception) -> bool:
    """Whether the system gave no more memory, to Python, a file that is read, a library or a thread."""
    if isinstance(error, ImportError | RuntimeError):
        return any(sign in str(error) for sign in _NOT_MAPPED)
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)


_NOT_MAPPED = ("failed to map segment", "annot allocate memory", "can't start new thread")


def _unforeseen(error: Exception) -> BadInput:
    """What to say of an error that is no sentence of ours."""
    import traceback

    frame = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())[:_MOST_SHOWN]
    what = english(
        "A file that was given holds something unforeseen: {kind} {text!r} ({place}, line {line}).",
        kind=type(error).__name__, text=text, place=Path(frame.filename).name, line=frame.lineno,
    )  # fmt: skip
    fix = english(
        "check the files; if they are as they should be, it is a fault of roundoff: report what {variable}=1 "
        "before the same command shows",
        variable=SHOW_TRACEBACK,
    )
    return BadInput(what, fix=fix)


def _output_folder(arguments: argparse.Namespace) -> Path | None:
    """The folder that a command is going to write, if it says so."""
    given = getattr(arguments, "output", None) or getattr(arguments, "output_dir", None)
    return given if isinstance(given, Path) else None


def _prepare_process() -> None:
    """End as tidily when told to terminate as on Ctrl-C, and print any name on any terminal."""
    interrupt_on_terminate()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _leave(code: int) -> NoReturn:
    """End the process with a code of ours.

    Python forgets it where the interruption came while it ran code from a string, as it does to make a dataclass:
    it takes it for one that nobody handled, and ends by the signal.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def command_of(name: str) -> Command:
    """The command of this name."""
    own = name.replace("-", "_")
    module = next((module for module, names in _MODULES.items() if name in names), own)
    found: Command = getattr(importlib.import_module(f"roundoff.cli.{module}"), own)
    return found


def parse_words(argv: Sequence[str]) -> argparse.Namespace | None:
    """The options of the command that words choose; None when there is none to choose, and the help is shown."""
    argv = joined_pairs(argv)
    formatter = help_formatter()
    parser = CommandParser(
        prog="roundoff",
        description="Find where a quantized or deployed neural network loses accuracy, and why.",
        epilog=_EXIT_CODES,
        formatter_class=formatter,
    )
    parser.add_argument("--version", action="version", version=f"roundoff {__version__}")
    add_language_option(parser)
    # Without `prog` argparse would format a usage for it, through rich, on every start.
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, prog="roundoff")
    chosen = chosen_command(argv)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, formatter_class=formatter)
        # Loading every command and declaring its options would take longer than showing the help.
        if name == chosen:
            command_of(name).declare(command)
            add_language_option(command)
    in_groups(parser, GROUPS)
    if not argv:
        with translated_argparse():
            parser.print_help(sys.stderr)
        return None
    if chosen is not None and chosen not in COMMANDS:
        parser.refuse(english("there is no command {chosen!r}", chosen=chosen), wrong=chosen, known=COMMANDS)
    arguments: argparse.Namespace
    arguments, unknown = parser.parse_known_args(with_language_first(argv))
    # argparse takes words in one place only; names may stand behind options, too.
    loose = [] if any(word.startswith("-") for word in unknown) else unknown
    if loose and "more_words" in arguments:
        getattr(arguments, arguments.more_words).extend(loose)
    elif unknown:
        option = next((word.partition("=")[0] for word in unknown if word.startswith("--")), "")
        options = [each for each in arguments.parser._option_string_actions if each.startswith("--")]
        what = english("unrecognized arguments: {unknown}", unknown=" ".join(unknown))
        arguments.parser.refuse(what, wrong=option, known=options)
    return arguments
