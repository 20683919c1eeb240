"""Axera's Pulsar2: its sub-commands and flags, and the settings of its configuration that are flags, too."""

import argparse
import json
from collections.abc import Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from roundoff.cli.options import a_number, command, opt, refused, subcommand, vendor_options
from roundoff.cli.parser import CommandParser
from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED, BadInput, nearest
from roundoff.messages.message import english

if TYPE_CHECKING:
    from roundoff.vendors.pulsar2.build import BuildOptions
    from roundoff.vendors.pulsar2.config.schema import BuildConfig
    from roundoff.vendors.pulsar2.tables import Log

_Member = TypeVar("_Member", bound=Enum)


@command(
    opt("--model FILE", "float or quantized .onnx", required=True),
    opt("--input_dir DIR", "where <input>.bin are", required=True),
    opt("--output_dir DIR", "where <output>.bin go", required=True),
    opt("--list FILE", "names a sub-folder of both DIRs per line"),
    opt("--random_input", "make up inputs that are missing"),
    opt("--batch_size N", "samples that stand in each file (default: one)", type=int, default=0),
    opt("--enable_perlayer_output", "write every layer's output too"),
    opt("--mode MODE", "Reference, or NPUBackend: exact integers", default="Reference"),
    opt("--target_hardware CHIP", "AX650, AX620E, M76H, M57 ...", default="AX650"),
    opt("--group_index N", "taken for Pulsar2's sake", type=int, default=0),
    opt("--json", "print which file holds which tensor as JSON"),
)
def _run(args: argparse.Namespace, terminal: Terminal) -> int:
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
        raise BadInput("There is no {what} {name!r}.", fix=nearest(name, kind.__members__), what=what, name=name)
    return kind[name]


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


_BUILD = (
    opt("--config FILE", "configuration: .json, .yaml, .toml, .prototxt"),
    opt("--frontend FILE", "optimized.onnx of the vendor's tool, for its names of layers"),
    opt("--force", "replace an earlier build in the same folder"),
    opt("--max-memory SIZE", "memory to stay within, e.g. 2GB"),
)


@command(_BUILD)
def _build(args: argparse.Namespace, terminal: Terminal) -> int:
    """Quantize a model as a configuration says, and write what Pulsar2 writes."""
    from roundoff.vendors.pulsar2.build import build

    config = _configuration(args)
    result = build(config, _log(terminal), options=_options(args, config))
    terminal.note(english("written: {folder}", folder=result.folder))
    if config.quant.check and not result.followed:
        terminal.note(english("quant.check: not every layer has the type that layer_configs ask for"))
        return EXIT_THRESHOLD_MISSED
    return EXIT_OK


def _options(args: argparse.Namespace, config: "BuildConfig") -> "BuildOptions":
    from roundoff.vendors.pulsar2.build import BuildOptions
    from roundoff.vendors.pulsar2.ticket import build_record

    # Paths may start in the folder of the configuration, too.
    base = None if args.config is None else Path(args.config).parent
    record = build_record(("roundoff", *args.words), config, config_file=args.config)
    return BuildOptions(base, force=args.force, record=record, max_memory=args.max_memory)


def _configuration(args: argparse.Namespace) -> "BuildConfig":
    from roundoff.vendors.pulsar2.config.files import load_config
    from roundoff.vendors.pulsar2.frontend import with_vendor_names
    from roundoff.vendors.pulsar2.recipe import model_problems

    base = None if args.config is None else Path(args.config).parent
    optimized = None if args.frontend is None else Path(args.frontend)
    check = partial(model_problems, base=base)
    return with_vendor_names(load_config(args.config, args.settings, check=check), optimized)


def _log(terminal: Terminal) -> "Log":
    from roundoff.vendors.pulsar2.tables import Log

    return Log(terminal.note, terminal.text, width=terminal.out.width, progress=terminal)


# tune -----------------------------------------------------------------------------------------------------------


def _methods(text: str) -> tuple[str, ...]:
    from roundoff.vendors.pulsar2.config.schema import CalibrationMethod

    names = [name.strip() for name in text.split(",") if name.strip()]
    known = [method.name for method in CalibrationMethod]
    wrong = next((name for name in names if name not in known), None)
    if wrong is not None or not names:
        raise refused(
            "{wrong!r} is no calibration method; {nearest}",
            wrong=wrong or text,
            nearest=nearest(wrong or "", known),
        )
    return tuple(dict.fromkeys(names))


def _cosine(text: str) -> float:
    return a_number(text, "{text!r} is not a number between 0 and 1", lambda number: 0 < number < 1)


@command(
    _BUILD,
    opt(
        "--methods A,B,...",
        "calibration methods in the order they are tried (default: MinMax,MSE,Percentile)",
        type=_methods,
    ),
    opt("--min_cosine X", "of the worst output end to end (default: 0.98)", type=_cosine),
    opt("--min_layer_cosine X", "of every layer by itself (default: 0.999)", type=_cosine),
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


_SUBCOMMANDS = {"build": _build, "tune": _tune, "run": _run}


@command(vendor_options(_SUBCOMMANDS))
def pulsar2(args: argparse.Namespace, terminal: Terminal) -> int:
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
    chosen = subcommand(args.sub, _SUBCOMMANDS)
    takes_settings = chosen is not _run
    parser = CommandParser(
        prog=f"roundoff pulsar2 {args.sub}",
        epilog=_SETTINGS if takes_settings else "",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    chosen.declare(parser)
    own, settings = split_settings(args.rest, parser) if takes_settings else (args.rest, [])
    found = parser.parse_args(own)
    found.settings, found.words = settings, args.words
    return int(found.execute(found, terminal))
