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
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.options import (
    add_data_options,
    add_html_option,
    add_limits,
    add_quantize_options,
    check_html,
    data_words,
    quantize_words,
    rows,
    write_html,
)
from roundoff.cli.terminal import Terminal

if TYPE_CHECKING:
    from roundoff.api.transformation import TransformOutcome

_DEFAULT_ROWS = 10


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
    from roundoff.api.transformation import transform
    from roundoff.core.document import DOCUMENT_NAME
    from roundoff.core.files import check_output_directory

    check_output_directory(args.output, marker=DOCUMENT_NAME, force=args.force)
    check_html(args)
    outcome = transform(
        args.model,
        args.steps,
        option=args.option,
        nodes=args.nodes,
        test=args.test,
        labels=args.labels,
        evaluator=args.evaluator,
        target=args.target,
        threads=args.threads,
        max_memory=args.max_memory,
        progress=terminal,
        **data_words(args),
        **quantize_words(args),
    )
    _write(args, terminal, outcome)
    return outcome.exit_code


def _write(args: argparse.Namespace, terminal: Terminal, outcome: "TransformOutcome") -> None:
    from roundoff.core.document import to_json
    from roundoff.messages.catalogue import translate
    from roundoff.pages.blocks import View
    from roundoff.pages.terminal import terminal_page, verdict_lines
    from roundoff.studies.transform.page import transform_page

    outcome.save(args.output, force=args.force)
    if args.json:
        terminal.text(to_json(outcome.document))
    elif (page := transform_page(outcome.document, View(args.rows))) is not None:
        terminal.print(terminal_page(page))
        step = translate("transform.left", file=str(args.output / outcome.fake_quant_name))
        terminal.print(verdict_lines([(translate("transform.next"), step)]))
    written = [args.output, *write_html(args, outcome.document)]
    terminal.written(written)
