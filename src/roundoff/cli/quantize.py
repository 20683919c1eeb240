"""Quantize a float model the way a chip's toolchain would.

Batch normalization is folded, every tensor gets a place in the target's
number formats, ranges are observed on --data, and DIR receives a model with
quantize-dequantize pairs that runs in onnxruntime, a model with integer
weights, plan.json with all decisions and scales, and the statistics, from
which another plan can be made without running the model again.
"""

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.data_options import add_data_options, samples_from
from roundoff.cli.quantize_options import add_quantize_options, settings_from
from roundoff.cli.terminal import Terminal
from roundoff.cli.values import size, threads
from roundoff.core.files import model_files, model_stem
from roundoff.errors import EXIT_OK, BadInput

if TYPE_CHECKING:
    from roundoff.core.document import InputFile, RunDocument
    from roundoff.quantize.calibration.calibration import Calibration
    from roundoff.quantize.pipeline import Quantization
    from roundoff.run.feeds import Samples

SUMMARY = "make a quantized model for a target chip"

_STATISTICS_NAME = "check_calibration.npz"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "model", type=Path, metavar="MODEL", help="the float model: .onnx, or .prototxt[,.caffemodel] of Caffe"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="where the results go")
    parser.add_argument(
        "--target",
        required=True,
        metavar="NAME|FILE",
        help="the chip, as listed by 'roundoff targets', or a .toml file of one's own",
    )
    add_quantize_options(parser)
    parser.add_argument("--prefix", metavar="NAME", help="start of the models' names (default: that of MODEL)")
    parser.add_argument(
        "--statistics",
        type=Path,
        metavar="FILE",
        help="take what an earlier run observed (its calibration.npz); --data then only serves to compare outputs",
    )
    parser.add_argument("--force", action="store_true", help="replace what an earlier run wrote to DIR")
    parser.add_argument("--json", action="store_true", help="print the plan and the figures as JSON")
    parser.add_argument("--max-memory", type=size, metavar="SIZE", help="memory to stay within, e.g. 2GiB")
    parser.add_argument("--threads", type=threads, metavar="N", help="threads to use (default: all cores)")
    add_data_options(parser)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Quantize, write, print."""
    from roundoff.cli.provenance import input_file
    from roundoff.core.files import check_output_directory
    from roundoff.graph.interface import inputs
    from roundoff.graph.load import load_model
    from roundoff.quantize.pipeline import quantize_model
    from roundoff.quantize.plan_file import PLAN_NAME
    from roundoff.run.feeds import NO_INPUTS

    started = time.monotonic()
    prefix = _prefix(args)
    check_output_directory(args.output, marker=PLAN_NAME, force=args.force)
    settings = settings_from(args)
    model = load_model(args.model)
    specs = inputs(model)
    origin = input_file("model", args.model)
    calibration = _statistics(args, origin)
    samples: Samples | None = None if specs else NO_INPUTS
    if args.data or (specs and calibration is None):
        samples = samples_from(args, specs)
    result = quantize_model(model, samples, settings, calibration=calibration, progress=terminal)
    document = _document(args, origin, time.monotonic() - started)
    _write(args, result, document, prefix=prefix)
    _print(args, terminal, result)
    terminal.written([args.output])
    return EXIT_OK


def _prefix(args: argparse.Namespace) -> str:
    prefix = model_stem(args.model) if args.prefix is None else args.prefix
    if not prefix or Path(prefix).name != prefix:
        raise BadInput(f"--prefix {prefix!r} is not the start of a file name.", fix="give a name without slashes")
    return str(prefix)


def _statistics(args: argparse.Namespace, origin: "InputFile") -> "Calibration | None":
    from roundoff.quantize.calibration.files import load_calibration

    if args.statistics is None:
        return None
    return load_calibration(args.statistics, model_hash=origin.sha256)


def _document(args: argparse.Namespace, origin: "InputFile", elapsed_s: float) -> "RunDocument":
    """What was asked, on what: from this the run can be told to others, and made again."""
    from roundoff.cli.provenance import data_paths, environment, input_file
    from roundoff.core.document import SCHEMA, RunDocument

    read = [("rules", args.rules), ("statistics", args.statistics)]
    if Path(args.target).is_file():
        read.append(("target", Path(args.target)))
    read += [("data", path) for path in data_paths(args.data)]
    return RunDocument(
        schema=SCHEMA,
        command=("roundoff", *args.words),
        inputs=(origin, *(input_file(role, path) for role, path in read if path is not None)),
        environment=environment(elapsed_s),
    )


def _write(args: argparse.Namespace, result: "Quantization", document: "RunDocument", *, prefix: str) -> None:
    from roundoff import __version__
    from roundoff.core.document import RECORD_NAME, to_json
    from roundoff.core.files import output_directory, write_text
    from roundoff.graph.save import save_model
    from roundoff.quantize.calibration.files import save_calibration
    from roundoff.quantize.plan_file import PLAN_NAME, PLAN_SCHEMA, SavedPlan, plan_json, saved_numbers

    origin = document.inputs[0]
    files = {"fake_quant": f"{prefix}_fake_quant_model.onnx", "deploy": f"{prefix}_deploy_model.onnx"}
    saved = SavedPlan(
        schema=PLAN_SCHEMA,
        roundoff=__version__,
        model=str(args.model),
        model_sha256=origin.sha256,
        method=result.best.method,
        samples=result.calibration.samples,
        arithmetic=result.target.arithmetic,
        plan=result.best.plan,
        numbers=saved_numbers(result.best.numbers),
        files=files,
        notes=result.notes,
    )
    with output_directory(args.output, marker=PLAN_NAME, force=args.force) as staged:
        save_model(result.fake_quant_model(), staged / files["fake_quant"])
        save_model(result.deploy_model(), staged / files["deploy"])
        save_calibration(result.calibration, staged / _STATISTICS_NAME, model_hash=origin.sha256)
        write_text(staged / PLAN_NAME, plan_json(saved))
        write_text(staged / RECORD_NAME, to_json(document))


def _print(args: argparse.Namespace, terminal: Terminal, result: "Quantization") -> None:
    from roundoff.measure.thresholds import load_profile
    from roundoff.messages.catalogue import told
    from roundoff.messages.phrases import count_of
    from roundoff.messages.sanitize import for_people
    from roundoff.quantize.terminal import methods_table, quantization_verdict, resolutions_table

    if args.json:
        terminal.text(_json(result))
        return
    best = for_people(result.best)
    title = told(
        "quantization_text.title",
        model=model_files(args.model)[0].name,
        target=result.target.name,
        method=best.method,
        samples=count_of(result.calibration.samples, "sample"),
    )
    advice = told("quantization_text.advice", model=args.model, folder=args.output)
    limits = load_profile("default")
    terminal.print(quantization_verdict(title, best.agreement, best.plan, limits=limits, advice=advice))
    if len(result.trials) > 1:
        terminal.text("")
        tried = {trial.method: for_people(trial.agreement) for trial in result.trials}
        terminal.print(methods_table(tried, taken=best.method))
    if best.plan.resolutions:
        terminal.text("")
        terminal.print(resolutions_table(best.plan.resolutions))
    for note in result.notes:
        terminal.remark(note)


def _json(result: "Quantization") -> str:
    from dataclasses import asdict

    content = {
        "target": result.target.name,
        "method": result.best.method,
        "samples": result.calibration.samples,
        "outputs": {trial.method: [asdict(each) for each in trial.agreement] for trial in result.trials},
        "nodes": [asdict(node) for node in result.best.plan.nodes],
        "rules": [asdict(resolution) for resolution in result.best.plan.resolutions],
        "notes": list(result.notes),
    }
    return json.dumps(content, indent=1, ensure_ascii=False)
