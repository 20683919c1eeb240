"""Axera's Pulsar2: its configuration, flags, tables and output, without it.

  roundoff pulsar2 build --input m.onnx --output_dir out --config config.json
      [--quant.calibration_method MSE] [--quant.precision_analysis 1]
  roundoff pulsar2 tune --input m.onnx --output_dir out --config config.json
  roundoff pulsar2 run --model out/quant/quant_axmodel.onnx --input_dir in
      --output_dir results --list list.txt

build quantizes as the configuration says and writes the tool's folder; tune
follows the two flow charts of its manual until the output is close enough;
run feeds files to a model. 'roundoff pulsar2 SUB --help' lists flags.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from roundoff.cli.options import size
from roundoff.cli.parser import CommandParser
from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED, BadInput, nearest
from roundoff.messages.message import english

if TYPE_CHECKING:
    from roundoff.vendors.pulsar2.building.build import BuildOptions
    from roundoff.vendors.pulsar2.building.log import Log
    from roundoff.vendors.pulsar2.config.schema import BuildConfig

__all__ = [
    "add_run_flags",
    "run_files",
]

_Member = TypeVar("_Member", bound=Enum)
_CHIPS = "AX650, AX620E, M76H, M57 ..."


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    """Declare the vendor's flags."""
    parser.add_argument("--model", type=Path, required=True, metavar="FILE", help="float or quantized .onnx")
    parser.add_argument("--input_dir", type=Path, required=True, metavar="DIR", help="where <input>.bin are")
    parser.add_argument("--output_dir", type=Path, required=True, metavar="DIR", help="where <output>.bin go")
    parser.add_argument("--list", type=Path, metavar="FILE", help="names a sub-folder of both DIRs per line")
    parser.add_argument("--random_input", action="store_true", help="make up inputs that are missing")
    parser.add_argument(
        "--batch_size", type=int, default=0, metavar="N", help="samples that stand in each file (default: one)"
    )
    parser.add_argument("--enable_perlayer_output", action="store_true", help="write every layer's output too")
    parser.add_argument(
        "--mode", default="Reference", metavar="MODE", help="Reference, or NPUBackend: exact integers"
    )
    parser.add_argument("--target_hardware", default="AX650", metavar="CHIP", help=_CHIPS)
    parser.add_argument("--group_index", type=int, default=0, metavar="N", help="taken for Pulsar2's sake")
    parser.add_argument("--json", action="store_true", help="print which file holds which tensor as JSON")


def run_files(args: argparse.Namespace, terminal: Terminal) -> int:
    """Feed files to a model and write what comes out, under Pulsar2's file names."""
    from roundoff.vendors.pulsar2.config.schema import PrecisionAnalysisMode, TargetHardware
    from roundoff.vendors.pulsar2.run import RunSettings, run_model

    settings = RunSettings(
        model=args.model,
        input_dir=args.input_dir,
        output_dir=args.output_dir,
        list_file=args.list,
        random_input=args.random_input,
        batch_size=args.batch_size,
        per_layer=args.enable_perlayer_output,
        mode=_member(PrecisionAnalysisMode, args.mode, "mode"),
        target_hardware=_member(TargetHardware, args.target_hardware, english("target hardware")),
        group_index=args.group_index,
    )
    outcome = run_model(settings, terminal.note if args.json else terminal.text)
    if args.json:
        result = {"cases": list(outcome.cases), "files": dict(outcome.files), "notes": list(outcome.notes)}
        terminal.text(json.dumps(result, indent=1, ensure_ascii=False))
    return EXIT_OK


def _member(kind: type[_Member], name: str, what: str) -> _Member:
    if name not in kind.__members__:
        raise BadInput(
            english("There is no {what} {name!r}.", what=what, name=name), fix=nearest(name, kind.__members__)
        )
    return kind[name]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sub-command and what follows it, which is read in Pulsar2's way."""
    parser.add_argument("sub", metavar="SUB", help=f"one of: {', '.join(_SUBCOMMANDS)}")
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="its flags")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Run one sub-command."""
    if args.sub not in _SUBCOMMANDS:
        raise BadInput(
            english("There is no sub-command {sub!r}.", sub=args.sub), fix=nearest(args.sub, _SUBCOMMANDS)
        )
    add_flags, work, takes_settings = _SUBCOMMANDS[args.sub]
    parser = CommandParser(
        prog=f"roundoff pulsar2 {args.sub}",
        description=work.__doc__,
        epilog=_SETTINGS if takes_settings else "",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_flags(parser)
    if takes_settings:
        own, settings = split_settings(args.rest, parser)
        found = parser.parse_args(own)
        found.settings = settings
    else:
        found = parser.parse_args(args.rest)
    found.words = args.words
    return work(found, terminal)


_SETTINGS = """\
Every single setting of the configuration is a flag too, and counts more than
the file: --input, --output_dir, --target_hardware, --input_shapes,
--quant.precision_analysis_method EndToEnd, --onnx_opt.model_check ...
Switches need no value. Paths start here, or in the configuration's folder.
"""


def split_settings(
    words: Sequence[str], parser: argparse.ArgumentParser
) -> tuple[list[str], list[tuple[str, str | None]]]:
    """Tell a sub-command's own flags from settings of the configuration, in either spelling.

    Args:
        words: What follows the sub-command.
        parser: Knows the flags of its own.

    Returns:
        Words for the parser, and settings with their values; None for a switch without one.
    """
    from roundoff.vendors.pulsar2.config.files import override_names

    names = override_names()
    own: list[str] = []
    settings: list[tuple[str, str | None]] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        action = parser._option_string_actions.get(name)
        if action is not None:
            own.append(word)
            if not equals and action.nargs != 0 and rest:
                own.append(rest.pop(0))
        elif name.startswith("--"):
            field = names.get(name.removeprefix("--"))
            if field is None:
                known = (*(f"--{each}" for each in names), *parser._option_string_actions)
                raise BadInput(english("There is no flag {name!r}.", name=name), fix=nearest(name, known))
            follows = not equals and rest and not rest[0].startswith("--")
            settings.append((name, value if equals else rest.pop(0) if follows else None))
        else:
            fix = english("every value follows its flag, as in --quant.calibration_method MSE")
            raise BadInput(english("{word!r} belongs to no flag.", word=word), fix=fix)
    return own, settings


# build ----------------------------------------------------------------------------------------------------------


def _build_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="configuration: .json, .yaml, .toml, .prototxt"
    )
    parser.add_argument("--force", action="store_true", help="replace an earlier build in the same folder")
    parser.add_argument("--max-memory", type=size, metavar="SIZE", help="memory to stay within, e.g. 2GB")


def _build(args: argparse.Namespace, terminal: Terminal) -> int:
    """Quantize a model as a configuration says, and write what Pulsar2 writes."""
    from roundoff.vendors.pulsar2.building.build import build

    config = _configuration(args)
    result = build(config, _log(terminal), options=_options(args, config))
    terminal.note(english("written: {folder}", folder=result.folder))
    if config.quant.check and not result.followed:
        terminal.note(english("quant.check: not every layer has the type that layer_configs ask for"))
        return EXIT_THRESHOLD_MISSED
    return EXIT_OK


def _options(args: argparse.Namespace, config: "BuildConfig") -> "BuildOptions":
    from roundoff.vendors.pulsar2.building.build import BuildOptions
    from roundoff.vendors.pulsar2.ticket import build_record

    # Paths may start in the folder of the configuration, too.
    base = None if args.config is None else Path(args.config).parent
    record = build_record(("roundoff", *args.words), config, config_file=args.config)
    return BuildOptions(base, force=args.force, record=record, max_memory=args.max_memory)


def _configuration(args: argparse.Namespace) -> "BuildConfig":
    from roundoff.vendors.pulsar2.building.recipe import model_problems
    from roundoff.vendors.pulsar2.config.files import load_config

    base = None if args.config is None else Path(args.config).parent
    check = partial(model_problems, base=base)
    return load_config(args.config, args.settings, check=check)


def _log(terminal: Terminal) -> "Log":
    from roundoff.vendors.pulsar2.building.log import Log

    return Log(terminal.note, terminal.text, width=terminal.out.width, progress=terminal)


# tune -----------------------------------------------------------------------------------------------------------


def _tune_flags(parser: argparse.ArgumentParser) -> None:
    _build_flags(parser)
    parser.add_argument(
        "--methods",
        type=_methods,
        metavar="A,B,...",
        help="calibration methods in the order they are tried (default: MinMax,MSE,Percentile)",
    )
    parser.add_argument(
        "--min_cosine", type=_cosine, metavar="X", help="of the worst output end to end (default: 0.98)"
    )
    parser.add_argument(
        "--min_layer_cosine", type=_cosine, metavar="X", help="of every layer by itself (default: 0.999)"
    )


def _tune(args: argparse.Namespace, terminal: Terminal) -> int:
    """Follow the two flow charts of the manual, and build with what they lead to."""
    from roundoff.search.strategies.flow_charts import GOOD_LAYER, GOOD_OUTPUT, ChartGoal
    from roundoff.vendors.pulsar2.tune import CONFIG_NAME, DEFAULT_METHODS, tune_build

    output = GOOD_OUTPUT if args.min_cosine is None else args.min_cosine
    layer = GOOD_LAYER if args.min_layer_cosine is None else args.min_layer_cosine
    config = _configuration(args)
    tuned = tune_build(
        config,
        _log(terminal),
        methods=args.methods or DEFAULT_METHODS,
        goal=ChartGoal(output, layer),
        options=_options(args, config),
    )
    folder = tuned.result.folder
    terminal.note(english("written: {folder}, {folder2}", folder=folder, folder2=folder / CONFIG_NAME))
    return EXIT_OK if tuned.followed.met else EXIT_THRESHOLD_MISSED


def _methods(text: str) -> tuple[str, ...]:
    from roundoff.vendors.pulsar2.config.schema import CalibrationMethod

    names = [name.strip() for name in text.split(",") if name.strip()]
    known = [method.name for method in CalibrationMethod]
    wrong = next((name for name in names if name not in known), None)
    if wrong is not None or not names:
        raise argparse.ArgumentTypeError(
            english(
                "{wrong!r} is no calibration method; {nearest}",
                wrong=wrong or text,
                nearest=nearest(wrong or "", known),
            )
        )
    return tuple(dict.fromkeys(names))


def _cosine(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number < 1:
        raise argparse.ArgumentTypeError(english("{text!r} is not a number between 0 and 1", text=text))
    return number


_Flags = Callable[[argparse.ArgumentParser], None]
_Work = Callable[[argparse.Namespace, Terminal], int]
_SUBCOMMANDS: dict[str, tuple[_Flags, _Work, bool]] = {
    "build": (_build_flags, _build, True),
    "tune": (_tune_flags, _tune, True),
    "run": (add_run_flags, run_files, False),
}
