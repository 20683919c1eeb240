"""Ascend's AMCT: its sub-commands and flags."""

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roundoff.cli.options import command, opt, subcommand, vendor_options
from roundoff.cli.parser import CommandParser
from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED, BadInput
from roundoff.messages.message import english, shown

if TYPE_CHECKING:
    from roundoff.vendors.amct.common.auto_calibration import AutoCalibrationResult
    from roundoff.vendors.amct.workflow import Files, Flavour

_DATA_FLAGS = ("input_shape", "data_dir", "data_types")


# As AMCT's functions take them, paths are texts.
_text = partial(opt, type=str)
_MODEL = (
    _text("--model FILE", "the model", required=True),
    _text("--weights FILE", ".caffemodel of a .prototxt (default: the one beside it)"),
    _text("--save_path PREFIX", "folder and prefix of results", required=True),
)
_CONFIG = (
    _text("--calibration_config FILE", "simplified configuration"),
    opt("--batch_num N", "batches of calibration (default: 1)", type=int),
    opt("--gpu_id N", "taken for AMCT's sake; the CPU is used", type=int),
)


@command(
    _MODEL,
    opt("--input_shape TEXT", 'shapes of inputs, "in1:n,c,h,w;in2:n,c"'),
    opt("--data_dir TEXT", 'folders of .bin files, "dir1;dir2"'),
    opt("--data_types TEXT", 'their types, "float32;int32"'),
    _text("--evaluator FILE", "Python file that runs the model instead"),
    _CONFIG,
)
def _calibrate(args: argparse.Namespace, terminal: Terminal) -> int:
    """Calibrate a model and write it quantized."""
    from roundoff.core.claims import ScratchFolder
    from roundoff.core.files import write_bytes
    from roundoff.vendors.amct.auto import load_evaluator, parse_binary_data
    from roundoff.vendors.amct.config import read_config
    from roundoff.vendors.amct.deploy import make_folder, results_of
    from roundoff.vendors.amct.workflow import calibrate_by, open_model

    flavour, files = _model(args)
    given = [flag for flag in _DATA_FLAGS if getattr(args, flag) is not None]
    if (args.evaluator is not None) == bool(given):
        what = (
            english("Both --evaluator and data were given.")
            if given
            else english("Neither --evaluator nor data was given.")
        )
        raise BadInput(
            what,
            fix=english(
                "give --evaluator, or {data_flags}", data_flags=", ".join(f"--{flag}" for flag in _DATA_FLAGS)
            ),
        )
    missing = [flag for flag in _DATA_FLAGS if flag not in given]
    if given and missing:
        raise BadInput(
            "--{missing} is missing.", fix=english("give it beside --{given}", given=given[0]), missing=missing[0]
        )
    results = results_of(args.save_path)
    with ScratchFolder() as folder:
        work = folder
        # The record of an earlier run stays with its models until this run has both.
        config, record = work / "config.json", work / "record.txt"
        _write_config(flavour, files, args, path=config)
        settings = read_config(config, None)
        evaluator: Any = (
            load_evaluator(Path(args.evaluator), methods=("calibration",))
            if args.evaluator is not None
            else parse_binary_data(args.input_shape, args.data_dir, args.data_types, batch_num=settings.batch_num)
        )
        make_folder(results.folder)
        opened = open_model(flavour, files, config)
        opened, records, _ = calibrate_by(evaluator, opened, source=files, record_file=record, work=work)
        half = settings.half_precision
        flavour.write_results(args.save_path, opened.recorded(records), half_precision=half)
        write_bytes(results.record, record.read_bytes())
    _say_written(terminal, flavour, args.save_path, results.record)
    return EXIT_OK


@command(
    _MODEL,
    _text("--evaluator FILE", "Python file that runs and judges models", required=True),
    _CONFIG,
    _text("--config_file FILE", "full configuration; it is only read"),
    opt(
        "--sensitivity",
        "what layers are ranked by (default: CosineSimilarity)",
        default="CosineSimilarity",
        choices=("CosineSimilarity", "Mse", "Sqnr"),
    ),
    opt("--max_trials N", "models to try at most", type=int),
    opt("--time_limit SECONDS", "no further model after that", type=float),
    opt("--alternatives TEXT", 'algorithms to try before float, e.g. "hfmg"', default=""),
    opt("--history", "form of the history file", default="json", choices=("json", "amct")),
    opt("--resume", "take measures from an earlier history"),
)
def _search(args: argparse.Namespace, terminal: Terminal) -> int:
    """Search for a configuration that is good enough, and write its models."""
    from roundoff.core.claims import ScratchFolder
    from roundoff.vendors.amct.auto import ModelAutoCalibration, load_evaluator
    from roundoff.vendors.amct.common.auto_calibration import MseSensitivity, SearchOptions, SqnrSensitivity
    from roundoff.vendors.amct.deploy import results_of

    flavour, files = _model(args)
    if args.config_file is not None and (args.calibration_config is not None or args.batch_num is not None):
        raise BadInput(
            english("--config_file decides alone."), fix=english("leave --calibration_config and --batch_num out")
        )
    measures = {"CosineSimilarity": "CosineSimilarity", "Mse": MseSensitivity(), "Sqnr": SqnrSensitivity()}
    options = SearchOptions(
        history_form=args.history,
        max_trials=args.max_trials,
        time_limit=args.time_limit,
        alternatives=tuple(each.strip() for each in args.alternatives.split(",") if each.strip()),
        resume=args.resume,
    )
    record = results_of(args.save_path).record
    with ScratchFolder() as folder:
        config = Path(args.config_file) if args.config_file is not None else folder / "config.json"
        if args.config_file is None:
            _write_config(flavour, files, args, path=config)
        result = ModelAutoCalibration(
            flavour,
            files,
            evaluator=load_evaluator(Path(args.evaluator)),
            config_file=config,
            record_file=record,
            save_dir=args.save_path,
            strategy="BinarySearch",
            sensitivity=measures[args.sensitivity],
            options=options,
        ).run()
    _show(result, terminal)
    _say_written(terminal, flavour, args.save_path, record)
    return EXIT_OK if result.met else EXIT_THRESHOLD_MISSED


@command(
    _MODEL,
    _text("--record_file FILE", "where the factors of a trained model go"),
    _text("--scale_offset_record_file FILE", "factors for a float model, found elsewhere"),
)
def _convert(args: argparse.Namespace, terminal: Terminal) -> int:
    """Write AMCT's models for a trained model, or for a float model with given factors."""
    from roundoff.vendors.amct.onnx import convert_qat_model
    from roundoff.vendors.amct.workflow import convert

    flavour, files = _model(args)
    if args.scale_offset_record_file is not None:
        if args.record_file is not None:
            raise BadInput(
                english("Factors that are given need not be written."), fix=english("leave --record_file out")
            )
        converted = convert(flavour, files, Path(args.scale_offset_record_file))
        flavour.write_results(args.save_path, converted, half_precision=False)
    elif len(files) > 1:
        what = english("A Caffe net says nothing of its training with quantizers.")
        raise BadInput(what, fix=english("give the factors with --scale_offset_record_file"))
    else:
        convert_qat_model(args.model, args.save_path, args.record_file)
    _say_written(terminal, flavour, args.save_path, None if args.record_file is None else Path(args.record_file))
    return EXIT_OK


def _model(args: argparse.Namespace) -> "tuple[Flavour, Files]":
    """The framework of a model, and its files."""
    from roundoff.core.files import caffe_pair, is_caffe
    from roundoff.vendors.amct.workflow import flavour_of

    model = Path(args.model)
    if not is_caffe(model):
        if args.weights is not None:
            raise BadInput(english("--weights is for Caffe models."), fix=english("leave it out for ONNX models"))
        return flavour_of((model,)), (model,)
    prototxt, caffemodel = caffe_pair(model if args.weights is None else Path(f"{model},{args.weights}"))
    if caffemodel is None:
        raise BadInput(
            "{prototxt} has no .caffemodel beside it.", fix=english("name it with --weights"), prototxt=prototxt
        )
    return flavour_of((prototxt, caffemodel)), (prototxt, caffemodel)


def _write_config(flavour: "Flavour", files: "Files", args: argparse.Namespace, *, path: Path) -> None:
    from roundoff.vendors.amct.workflow import create_config

    if args.calibration_config is not None and args.batch_num is not None:
        what = english("Both --calibration_config and --batch_num were given.")
        raise BadInput(what, fix=english("write batch_num into the configuration"))
    create_config(
        flavour,
        files,
        str(path),
        batch_num=1 if args.batch_num is None else args.batch_num,
        config_defination=args.calibration_config,
    )


def _show(result: "AutoCalibrationResult", terminal: Terminal) -> None:
    best, total = result.best, len(result.best.roll_back_config)
    terminal.text(english("trial  in float   good enough  loss"))
    for number, trial in enumerate(result.trials, 1):
        floats = shown(english("{count} of {total}", count=trial.floats, total=total))
        answer = shown(english("yes") if trial.satisfied else english("no"))
        terminal.text(f"{number:>5}  {floats:<9}  {answer:<11}  {trial.loss:g}")
    kept = english(
        "{count} of {total} layers quantized, loss {loss:g}",
        count=total - best.floats,
        total=total,
        loss=best.loss,
    )
    if result.met:
        terminal.text(english("good enough: {kept}", kept=kept))
    else:
        terminal.text(english("NOT good enough, the best found: {kept}", kept=kept))


def _say_written(terminal: Terminal, flavour: "Flavour", save_path: str, record: Path | None) -> None:
    fake, deploy = flavour.results(save_path)
    for path in (*fake, *deploy, flavour.info(save_path), *((record,) if record is not None else ())):
        terminal.note(english("written: {path}", path=path))


_SUBCOMMANDS = {"calibration": _calibrate, "auto-calibration": _search, "convert": _convert}


@command(vendor_options(_SUBCOMMANDS))
def amct(args: argparse.Namespace, terminal: Terminal) -> int:
    """Ascend's AMCT: its sub-commands and flags, without its packages.

      roundoff amct calibration --model m.onnx --save_path out/m
          --input_shape "x:1,3,224,224" --data_dir bins --data_types float32
      roundoff amct calibration --model m.onnx --save_path out/m --evaluator e.py
      roundoff amct auto-calibration --model m.onnx --save_path out/m
          --evaluator e.py
      roundoff amct convert --model qat.onnx --save_path out/m
      roundoff amct calibration --model m.prototxt --weights m.caffemodel ...

    Written are <save_path>_fake_quant_model.onnx, which runs anywhere,
    <save_path>_deploy_model.onnx for the compiler, <save_path>_quant.json and
    <save_path>_record.txt; for Caffe nets .prototxt and .caffemodel of both.
    'roundoff amct SUB --help' lists flags.
    """
    name = args.sub.replace("_", "-")
    parser = CommandParser(prog=f"roundoff amct {name}")
    found = parser.taught(subcommand(name, _SUBCOMMANDS), args.rest)
    return int(found.execute(found, terminal))
