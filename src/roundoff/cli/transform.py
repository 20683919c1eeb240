"""Change a model so that it quantizes better, and prove that it does.

STEPS is one or several of these, with commas between, in this order:

  smooth         move outliers of activations into weights (SmoothQuant)
  equalize       share out ranges of channels between neighbouring layers
  explicit-bias  give layers without a bias one of zeros
  round          round weights up or down by what their layers compute
  bias-correct   put into biases by how much rounding moves means

The first three change the float model, not what it computes: its outputs are
compared, and a change that shows is undone. The others change codes alone.
The model is quantized before and after, with the same settings; if it gets
worse, all is undone and the exit code is 1. DIR receives the float model, the
quantized ones and a run document.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.data_options import add_data_options, samples_from
from roundoff.cli.html_option import add_html_option, check_html, write_html
from roundoff.cli.inspection_options import add_limits, rows
from roundoff.cli.quantize_options import add_quantize_options, settings_from
from roundoff.cli.terminal import Terminal
from roundoff.core.files import model_stem
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED, BadInput, nearest

if TYPE_CHECKING:
    from roundoff.core.document import RunDocument
    from roundoff.core.plan import Step
    from roundoff.core.tensors import Array
    from roundoff.graph.load import Model
    from roundoff.run.feeds import Samples
    from roundoff.studies.transform.study import Judge, TransformTrial

SUMMARY = "smooth, equalize, correct or round, and see what it brings"

_DEFAULT_ROWS = 10
# What users call what is registered under another name.
_NAMES = {"round": "round_weights"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("steps", metavar="STEPS", help="what to do, e.g. equalize,bias-correct")
    what = "the float model: .onnx, or .prototxt[,.caffemodel] of Caffe"
    parser.add_argument("model", type=Path, metavar="MODEL", help=what)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="where the results go")
    parser.add_argument(
        "--target",
        required=True,
        metavar="NAME|FILE",
        help="the chip, as listed by 'roundoff targets', or a .toml file of one's own",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="option of a step, e.g. alpha=0.7; STEP.KEY=VALUE for one step alone; may be repeated",
    )
    parser.add_argument("--nodes", nargs="+", default=[], metavar="NAME", help="limit the steps to these nodes")
    parser.add_argument("--force", action="store_true", help="replace what an earlier run wrote to DIR")
    parser.add_argument("--json", action="store_true", help="print the run document instead of the table")
    add_html_option(parser)
    parser.add_argument(
        "--rows",
        type=rows,
        default=_DEFAULT_ROWS,
        metavar="N|all",
        help="nodes to show of each step (default: 10)",
    )
    score = parser.add_argument_group("judging")
    score.add_argument(
        "--test", metavar="PATH", help="other samples to judge on, read like --data (default: those of --data)"
    )
    judge = score.add_mutually_exclusive_group()
    judge.add_argument("--labels", type=Path, metavar="FILE", help="right classes of these samples: .npy or CSV")
    judge.add_argument("--evaluator", type=Path, metavar="FILE", help="a Python file with evaluate(run, samples)")
    add_quantize_options(parser)
    add_limits(parser)
    add_data_options(parser)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Apply, quantize twice, judge, write, print."""
    from roundoff.core.document import DOCUMENT_NAME
    from roundoff.core.files import check_output_directory
    from roundoff.graph.interface import inputs
    from roundoff.graph.load import load_model
    from roundoff.run.evaluators import load_evaluator
    from roundoff.run.feeds import NO_INPUTS
    from roundoff.studies.transform.study import try_steps

    started = time.monotonic()
    check_output_directory(args.output, marker=DOCUMENT_NAME, force=args.force)
    check_html(args)
    steps = _steps(args)
    settings = settings_from(args)
    evaluator = None if args.evaluator is None else load_evaluator(args.evaluator)
    model = load_model(args.model)
    specs = inputs(model)
    samples: Samples = samples_from(args, specs) if specs else NO_INPUTS
    judge = replace(_judge(args, model, samples), evaluator=evaluator)
    trial = try_steps(model, samples, steps, settings=settings, judge=judge, progress=terminal)
    document = _document(args, model, trial, elapsed_s=time.monotonic() - started)
    _write(args, terminal, trial, document)
    return EXIT_OK if trial.report.kept or not trial.report.changed else EXIT_THRESHOLD_MISSED


def _steps(args: argparse.Namespace) -> "list[Step]":
    """The steps with their options, checked before anything runs."""
    from roundoff.core.plan import Step
    from roundoff.quantize.corrections.registry import all_corrections
    from roundoff.quantize.transforms.registry import all_transforms
    from roundoff.studies.transform.study import check_steps

    known = {each.name: tuple(each.options) for each in all_transforms()}
    known |= {each.name: tuple(each.options) for each in all_corrections()}
    words = [word.strip() for word in args.steps.split(",")]
    names = [_NAMES.get(word, word).replace("-", "_") for word in words]
    shown = [name for name in known if name not in _NAMES.values()] + list(_NAMES)
    for word, name in zip(words, names, strict=True):
        if name not in known:
            what = f"There is no step {word!r}."
            raise BadInput(what, fix=nearest(word, [each.replace("_", "-") for each in shown]))
    # Corrections have nowhere to go in a layer without a bias.
    if "bias_correct" in names and "explicit_bias" not in names:
        names.insert(0, "explicit_bias")
    given = [_option(text, names, known) for text in args.option]
    steps = []
    for name in names:
        own = {key: value for step, key, value in given if step in ("", name) and key in known[name]}
        steps.append(Step(name, tuple(sorted(own.items())), tuple(args.nodes)))
    check_steps(steps)
    return steps


def _option(text: str, names: Sequence[str], known: "dict[str, tuple[str, ...]]") -> tuple[str, str, str]:
    """Which step an option is for (empty for all that have it), its name and its value."""
    left, separator, value = text.partition("=")
    if not separator or not left.strip():
        raise BadInput(f"--option {text!r} is not of the form KEY=VALUE.", fix="write it as in --option alpha=0.7")
    step, dot, key = left.strip().replace("-", "_").rpartition(".")
    step = _NAMES.get(step, step) if dot else ""
    if step and step not in names:
        raise BadInput(f"--option {text}: {step!r} is none of the steps.", fix=nearest(step, names))
    options = [option for name in names if step in ("", name) for option in known[name]]
    if key not in options:
        fix = nearest(key, options) if options else "leave it out, the steps have no options"
        raise BadInput(f"--option {text}: none of the steps has an option {key!r}.", fix=fix)
    return step, key, value.strip()


def _judge(args: argparse.Namespace, model: "Model", samples: "Samples") -> "Judge":
    from roundoff.graph.interface import inputs
    from roundoff.samples.labels import load_labels
    from roundoff.studies.transform.study import Judge

    unseen = args.test is not None
    if unseen:
        again = argparse.Namespace(**{**vars(args), "data": [args.test], "samples": None})
        samples = samples_from(again, inputs(model))
    labels: Array | None = None
    if args.labels is not None:
        labels = load_labels(args.labels, samples.names)
        if args.samples is not None and not unseen and labels.size > len(samples.names):
            labels = labels[: len(samples.names)]
    return Judge(samples, unseen, labels)


def _document(
    args: argparse.Namespace, model: "Model", trial: "TransformTrial", *, elapsed_s: float
) -> "RunDocument":
    from roundoff.cli.provenance import data_paths, environment, input_file
    from roundoff.core.document import SCHEMA, RunDocument
    from roundoff.graph.interface import topology

    given = [("model", args.model), ("rules", args.rules), ("labels", args.labels), ("evaluator", args.evaluator)]
    if Path(args.target).is_file():
        given.append(("target", Path(args.target)))
    given += [("data", path) for path in data_paths([*(args.data or ()), *([args.test] if args.test else [])])]
    return RunDocument(
        schema=SCHEMA,
        command=("roundoff", *args.words),
        inputs=tuple(input_file(role, path) for role, path in given if path is not None),
        network=topology(model),
        environment=environment(elapsed_s),
        transform=trial.report,
    )


def _write(args: argparse.Namespace, terminal: Terminal, trial: "TransformTrial", document: "RunDocument") -> None:
    from roundoff.core.document import to_json
    from roundoff.graph.insertion import deploy_model, fake_quant_model
    from roundoff.graph.save import save_model
    from roundoff.messages.catalogue import told
    from roundoff.pages.blocks import View
    from roundoff.pages.terminal import terminal_page, verdict_lines
    from roundoff.report.run_directory import write_run
    from roundoff.studies.transform.page import transform_page

    quantized, stem = trial.quantized, model_stem(args.model)
    fake = f"{stem}_fake_quant_model.onnx"
    models = {
        f"{stem}_float_model.onnx": lambda path: save_model(quantized.float_model, path),
        fake: lambda path: save_model(fake_quant_model(quantized.float_model, quantized.quantizers), path),
        f"{stem}_deploy_model.onnx": lambda path: save_model(
            deploy_model(quantized.float_model, quantized.quantizers), path
        ),
    }
    write_run(document, args.output, force=args.force, more=models)
    if args.json:
        terminal.text(to_json(document))
    elif (page := transform_page(document, View(args.rows))) is not None:
        terminal.print(terminal_page(page))
        step = told("transform.left", file=str(args.output / fake))
        terminal.print(verdict_lines([(told("transform.next"), step)]))
    written = [args.output, *write_html(args, document)]
    terminal.written(written)
