"""The commands that ask one question of a network: which tensors, layers, channels or samples lose how much."""

import argparse
import shlex
from pathlib import Path
from typing import Any

from roundoff.cli.options import (
    DASK,
    DATA,
    EVALUATOR,
    FLOAT_MODEL,
    INSPECTION,
    LABELS,
    LIMITS,
    QUANTIZATION,
    SUBJECT,
    a_number,
    command,
    given,
    group,
    names_from,
    number,
    numbers,
    one_of,
    opt,
    positive,
    said_options,
    shape,
    subject,
    take_model,
    whole_number,
)
from roundoff.cli.results import (
    FORCE,
    HTML,
    SORT,
    check_results,
    next_commands,
    print_page,
    results,
    show,
    top,
    write_html,
)
from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_INTERRUPTED, BadInput, nearest
from roundoff.messages.catalogue import translate
from roundoff.messages.message import english

_KINDS = ("node", "weight", "activation")
_MOST_BINS = 10_000


@command(
    SUBJECT,
    opt("--method", "which error (default: both)", choices=("local", "accumulated", "both"), default="both"),
    opt(
        "--mode",
        "fake quantization in onnxruntime, or exact integer arithmetic (default: reference)",
        choices=("reference", "integer"),
        default="reference",
    ),
    opt(
        "--arithmetic NAME|FILE",
        "for --mode integer: compute like this target (default: the one quantized for, else the widest)",
    ),
    results("layers.csv", "order,node,op_type,", SORT, top(6)),
    LIMITS,
    DATA,
)
def layers(args: argparse.Namespace, terminal: Terminal) -> int:
    """Show what quantization costs each layer of a model, and where the loss begins.

    Two errors stand side by side. Local: the unit of the node alone, fed with the
    float model's tensors, quantized on entry. Accumulated: the whole quantized
    model. The verdict says whether few units cause the loss at the outputs, proven
    by putting them into float, or whether it adds up over many.

    Columns: q, type of the codes; dB, energy of the float tensor over that of the
    error (SQNR); steps, root mean square of the error in quantization steps (0.29
    is rounding alone); clip, values cut off; levels, codes that occur of those
    there are; adds, estimated share of the error at the outputs, by which rows are
    sorted and units are tried.
    """
    from roundoff.api.studies import layers
    from roundoff.pages.blocks import View
    from roundoff.studies.layers.page import layers_page

    check_results(args)
    outcome = layers(**given(args, terminal))
    page = layers_page(outcome.document, View(args.top, args.sort))
    lossy = outcome.result.verdict.kind in ("local", "distributed")
    then = next_commands(page, translate("layers.next"), [_diagnosed(args)] if lossy else [])
    show(args, terminal, outcome.document, (page, then))
    return outcome.exit_code


def _diagnosed(args: argparse.Namespace) -> str:
    """The command that finds out why the same is lost, and repairs it."""
    model = [] if args.model is None else [str(args.model)]
    chip = ["--target", args.target, *said_options(args, QUANTIZATION)] if args.target is not None else []
    given = chip or ["--quantized", str(args.quantized)]
    words = ["diagnose", *model, *said_options(args, DATA), *given, "--fix", "-o", "repaired"]
    return shlex.join(["roundoff", *words])


@command(
    SUBJECT,
    group(
        "what is measured",
        opt(
            "--kind KIND...",
            "node, weight, activation: which rankings (default: all three, from one run)",
            choices=_KINDS,
            default=list(_KINDS),
        ),
        opt("--nodes GLOB...", "only these nodes, tensors or quantizers", action="extend", default=[]),
        opt(
            "--group NAME...",
            "also switch these nodes, tensors or quantizers together; may be repeated",
            action="append",
            default=[],
        ),
        opt(
            "--metric NAME,...",
            "what outputs are compared by; the first ranks (default: sqnr_db and four more)",
            default="sqnr_db,cosine,mse,mean_relative_error,chebyshev",
        ),
        opt(
            "--output-node NAME...",
            "compare these tensors, or outputs of these nodes, instead of the model's outputs",
            action="extend",
            default=[],
        ),
        opt("--leave-one-out", "quantize everything but the one, instead of it alone"),
    ),
    group(
        "effort",
        opt("--exact", "measure all on all samples"),
        opt("--fast", "take fewer samples: 4 for all, 16 for the leading ones"),
        opt("--first-samples N", "samples that all are measured on (default: 16, with --fast 4)", type=positive),
        opt("--budget TIME", "stop after this time, as 90s, 5m or 1h"),
        opt("--resume FILE", "remember what is measured in FILE, and go on from there"),
        DASK,
    ),
    results("sensitivity.csv", "kind,rank,name,node,", top(4, "rows of each table"), pictures="FILE|DIR"),
    LIMITS,
    DATA,
)
def sensitivity(args: argparse.Namespace, terminal: Terminal) -> int:
    """Rank nodes, weights and activations by what each one alone does to the outputs.

    Each is quantized alone, everything else stays float, and the outputs are
    compared with those of the float model; --leave-one-out does the opposite.
    By default all are measured on 16 samples, then the leading ones on all;
    with --fast all on 4, then the leading ones on 16.
    Ctrl-C shows what is done so far; with --resume FILE the next run goes on there.

    This is not the local error of 'roundoff layers': a node whose own error is
    large may hardly matter to the outputs, and the other way round.
    """
    from roundoff.api.studies import sensitivity
    from roundoff.pages.blocks import View
    from roundoff.report.plots.curves import sensitivity_picture
    from roundoff.studies.sensitivity.page import sensitivity_page

    check_results(args)
    _check_journal(args)
    outcome = sensitivity(**given(args, terminal, "top"))
    found = outcome.result
    drawn = {f"sensitivity_of_{kind}": _painter(sensitivity_picture, found, kind) for kind in found.rankings}
    show(args, terminal, outcome.document, sensitivity_page(outcome.document, View(args.top)), pictures=drawn)
    if outcome.exit_code == EXIT_INTERRUPTED and args.resume is not None:
        terminal.note(translate("sensitivity.interrupted", file=args.resume))
    return outcome.exit_code


def _painter(picture: Any, *shown: Any) -> Any:
    """Draws something in the form it is asked for."""
    return lambda form: picture(*shown, form=form)


def _check_journal(args: argparse.Namespace) -> None:
    """Refuse a journal that results would be written over, or into whose folder they could not be written."""
    if args.resume is None:
        return
    journal = args.resume.resolve()
    for option, path in (("--csv", args.csv), ("--plot", args.plot)):
        if path is not None and path.resolve() == journal:
            raise BadInput(
                english("--resume and {option} both name {path}.", option=option, path=path),
                fix=english("give each a file of its own"),
            )
    if args.output is not None and journal.is_relative_to(args.output.resolve()):
        what = english(
            "--resume {resume} is in the folder of -o, which is written whole or not at all.", resume=args.resume
        )
        raise BadInput(what, fix=english("keep the journal beside that folder"))


@command(
    SUBJECT,
    group(
        "curves",
        opt(
            "--only NAME...",
            "for each NAME a curve with only that quantized; '[A,B]' for both of them in one curve",
            action="extend",
            default=[],
        ),
        opt(
            "--except NAME...",
            "a curve with everything quantized but these; may be repeated",
            dest="leave_out",
            action="append",
            default=[],
        ),
        opt(
            "--nested LISTS",
            "for each inner list of '[[A],[A,B]]' a curve with only these quantized: partial_qmodel_0, ...",
        ),
        opt("--nested-except LISTS", "the same with everything quantized but these"),
        opt("--metric NAME", "what to compare by (default: cosine)", default="cosine"),
        opt("--average", "show at each node the mean of all nodes up to it"),
    ),
    results("curves.csv", "order,node,op_type,tensor,output,metric,", top(20, "nodes shown"), pictures="FILE|DIR"),
    LIMITS,
    DATA,
)
def accumulate(args: argparse.Namespace, terminal: Terminal) -> int:
    """Show how error grows along a network, with some of its quantizers on.

    Each curve is a model between float and fully quantized, compared with the
    float model at every quantized node. The fully quantized model is always the
    base line. Without --only, --except or --nested the curves are weights alone
    and activations alone, and the verdict says which of them make the error.

    A NAME is a node (the quantizers on its inputs), a quantizer, a tensor, a glob,
    or one of the words weight, activation and all; op:Conv goes by operation.
    """
    from roundoff.api.studies import accumulate
    from roundoff.pages.blocks import View
    from roundoff.report.plots.curves import accumulation_picture
    from roundoff.studies.accumulate.page import accumulation_page

    take_model(args, (args.only, *args.leave_out))
    check_results(args)
    outcome = accumulate(**given(args, terminal))
    page = accumulation_page(outcome.document, View(args.top))
    drawn = {"curves": _painter(accumulation_picture, outcome.result)}
    show(args, terminal, outcome.document, page, pictures=drawn)
    return outcome.exit_code


@command(
    SUBJECT,
    group(
        "what to change",
        opt(
            "--kind",
            "nodes with all their inputs, or single quantizers (default: node)",
            choices=_KINDS,
            default="node",
        ),
        opt("--to", "what it becomes (default: float)", choices=("float", "s16", "u16"), default="float"),
        opt("--top K|all", "try up to so many (default: 20)", default=20),
        one_of(
            opt("--ranking FILE", "take the order from a file: run.json, CSV, or a name per line"),
            opt("--nodes NAME...", "take these, in this order"),
        ),
    ),
    group(
        "score",
        opt("--score NAME", "a metric, same_top1 or accuracy (default: cosine)"),
        one_of(LABELS, EVALUATOR),
        opt("--goal SHARE|SCORE", "99%% of the float score (the default), or a score"),
        opt("--stop-at-goal", "with --evaluator: try no more once the goal is reached"),
    ),
    DASK,
    results("partial.csv", "count,subject,op_type,", pictures="FILE|DIR"),
    LIMITS,
    DATA,
)
def partial(args: argparse.Namespace, terminal: Terminal) -> int:
    """Find out how few nodes have to stay in float, or need 16 bits.

    The worst of the network is left in float: none of it, the first, the first
    two, ... and each time the model is scored. The knee is the smallest number
    that reaches --goal. The order is that of a sensitivity ranking, unless
    --ranking or --nodes give another. Exit code 1 when --goal is not reached.

    An evaluator is a Python file with a function evaluate(run, samples) that
    returns a number: samples is a sequence of inputs, run(inputs) gives outputs,
    both as dictionaries of arrays. HIGHER_IS_BETTER = False turns it around.
    """
    from roundoff.api.studies import partial
    from roundoff.report.plots.curves import partial_picture
    from roundoff.studies.partial.page import partial_page

    take_model(args, (args.nodes or [],))
    check_results(args)
    outcome = partial(**given(args, terminal, "top"))
    drawn = {"partial": _painter(partial_picture, outcome.result)}
    show(args, terminal, outcome.document, partial_page(outcome.document), pictures=drawn)
    return outcome.exit_code


def _bins(text: str) -> int:
    return whole_number(
        text,
        "{text!r} is not a number of bins; write 2 to {most_bins}",
        least=2,
        most=_MOST_BINS,
        most_bins=_MOST_BINS,
    )


@command(
    INSPECTION,
    opt("--bins N", "bins of a histogram (default: by the values)", type=_bins),
    results("distribution.csv", "name,kind,tensor,node,op_type,shape,suits,unimodal,peaks", pictures="FILE|DIR"),
    LIMITS,
    more_words="nodes",
)
def distribution(args: argparse.Namespace, terminal: Terminal) -> int:
    """Show how values are distributed, and what their quantizers make of them.

    NODE is the name of a node (its outputs, before and after quantization), of a
    tensor, of a weight, or of a quantizer (the values it is fed with; also by
    the name other tools give it, as TENSOR_QuantizeLinear); or a glob, best in
    quotes. Weights need no --data.
    """
    from roundoff.api.studies import distribution
    from roundoff.report.plots.distributions import distribution_picture
    from roundoff.studies.distribution.page import distribution_page

    names_from(args)
    check_results(args)
    outcome = distribution(**given(args, terminal))
    found = outcome.result.distributions
    drawn = {f"{each.name}_{each.kind}": _painter(distribution_picture, each) for each in found}
    show(args, terminal, outcome.document, distribution_page(outcome.document), pictures=drawn)
    return outcome.exit_code


@command(
    INSPECTION,
    opt(
        "--axis N",
        "where the channels are (default: where the scales are, else as usual for the operation)",
        type=int,
    ),
    results("channels.csv", "name,kind,tensor,axis,channel,low,p01", pictures="FILE|DIR"),
    LIMITS,
    more_words="nodes",
)
def channels(args: argparse.Namespace, terminal: Terminal) -> int:
    """Show how the channels of a tensor differ, and whether one scale serves them.

    NODE is a node, a tensor, a weight or a quantizer, or a glob, best in quotes.
    For each channel the smallest and the largest value, quartiles, median, mean,
    and how many levels it has when all share one scale. Weights need no --data.
    """
    from roundoff.api.studies import channels
    from roundoff.report.plots.distributions import channels_picture
    from roundoff.studies.distribution.page import channels_page

    names_from(args)
    check_results(args)
    outcome = channels(**given(args, terminal))
    found = outcome.result.spreads
    drawn = {f"{each.name}_{each.kind}": _painter(channels_picture, each) for each in found}
    show(args, terminal, outcome.document, channels_page(outcome.document), pictures=drawn)
    return outcome.exit_code


@command(
    subject(required=False),
    opt("--nodes GLOB...", "only tensors or nodes whose names match (quote it)", default=[]),
    opt("--log-base X", "base of the logarithm, above 1 (default: 2)", type=float, default=2.0),
    opt("--axis N", "where the channels are (default: as usual for the operation)", type=int),
    results(
        "outliers.csv",
        "order,tensor,node,op_type,shape,axis,quantized,channels,sparse_ratio",
        SORT,
        top(20),
        pictures="FILE|DIR",
    ),
    LIMITS,
    DATA,
)
def outliers(args: argparse.Namespace, terminal: Terminal) -> int:
    """Count in every tensor the channels that are small against its largest value.

    The level of a channel is the logarithm (to the base 2, or --log-base) of the
    tensor's largest magnitude over that of the channel: at level 6 one scale for
    all leaves it 4 of 256 levels. Many such channels ask for smoothing, for a scale
    per channel or for 16 bits. Needs no quantized model.
    """
    from roundoff.api.studies import outliers
    from roundoff.pages.blocks import View
    from roundoff.report.plots.distributions import outliers_picture
    from roundoff.studies.distribution.page import outliers_page

    check_results(args)
    outcome = outliers(**given(args, terminal))
    page = outliers_page(outcome.document, View(args.top, args.sort))
    show(args, terminal, outcome.document, page, pictures={"outliers": _painter(outliers_picture, outcome.result)})
    return outcome.exit_code


@command(
    SUBJECT,
    opt(
        "--metric NAME,...",
        "what outputs are compared by; the first ranks (default: sqnr_db,cosine,mse)",
        default="sqnr_db,cosine,mse",
    ),
    opt(
        "--output-node NAME",
        "compare this tensor, or the outputs of this node, instead of the model's outputs; may be repeated",
        action="append",
        default=[],
    ),
    results(
        "samples.csv",
        "rank,sample,index,score,moved_top",
        top(10, "samples shown and copied"),
        opt("--copy-to DIR", "store the worst samples and a list of them"),
        pictures="FILE|DIR",
    ),
    LIMITS,
    DATA,
)
def samples(args: argparse.Namespace, terminal: Terminal) -> int:
    """Rank samples by how much quantization changes their outputs.

    The worst sample comes first; a sample is as bad as its worst output. With
    --copy-to the worst ones are stored as the model is fed with them, beside a
    list worst.txt that any command takes: --data DIR/worst.txt.
    """
    from roundoff.api.studies import samples
    from roundoff.pages.blocks import View
    from roundoff.report.plots.curves import worst_samples_picture
    from roundoff.studies.samples.page import samples_page

    check_results(args)
    _check_copy(args)
    outcome = samples(**given(args, terminal))
    page = samples_page(outcome.document, View(args.top))
    drawn = {"samples": _painter(worst_samples_picture, outcome.result)}
    show(args, terminal, outcome.document, page, pictures=drawn)
    if args.copy_to is not None:
        listed = outcome.copy_to(args.copy_to, top=args.top, force=args.force)
        terminal.note(translate("samples.copied", folder=args.copy_to, list=listed))
    return outcome.exit_code


def _check_copy(args: argparse.Namespace) -> None:
    from roundoff.core.files import check_output_directory
    from roundoff.samples.sample_set import LIST_NAME

    if args.copy_to is None:
        return
    if args.output is not None and args.copy_to.resolve() == args.output.resolve():
        raise BadInput(
            english("-o and --copy-to both name {copy_to}.", copy_to=args.copy_to),
            fix=english("give each a folder of its own"),
        )
    check_output_directory(args.copy_to, marker=LIST_NAME, force=args.force, option="--copy-to")


def _share(text: str) -> float:
    return a_number(text, "{text!r} is not a share; write a number from 0 to 0.5", lambda share: 0 <= share <= 0.5)


@command(
    FLOAT_MODEL,
    opt(
        "--target NAME|FILE",
        "the chip; says which tensors are quantized, and how (default: generic-int8)",
        default="generic-int8",
    ),
    opt("--calibration NAME", "minmax, percentile, mse, entropy ... (default: the target's)"),
    one_of(
        opt("--held-out PATH", "other samples that ranges must hold for, read like --data"),
        opt(
            "--share X",
            "share of the samples that is held out instead; 0 for none (default: 0.2)",
            type=_share,
            default=0.2,
        ),
    ),
    opt("--labels FILE", "right classes of the samples, as .npy or CSV: check coverage"),
    opt("--seed N", "of what is chosen at random (default: 0)", type=int, default=0),
    results("calibration.csv", "tensor,low,high,half,lone_sample", top(10, "ranges shown"), pictures="FILE"),
    LIMITS,
    DATA,
    # The list of all options would be wider than a terminal.
    usage="%(prog)s MODEL --data PATH [options]",
)
def check_calibration(args: argparse.Namespace, terminal: Terminal) -> int:
    """Say whether samples are fit for calibration, what is wrong, and what to do.

    Looked for: too few samples, broken and blank ones, duplicates, single samples
    that set a range alone, samples prepared otherwise than in training, missing
    classes, and ranges that are too narrow for samples that are held out: those of
    --held-out, or some of the set, chosen at random.

    Columns: half, width of the range that half of the samples give over that of
    all; held out, share of the values of held-out samples beyond the range; lone,
    how much wider a single sample makes the range, and which.
    """
    from roundoff.api.checks import check_calibration
    from roundoff.pages.blocks import View
    from roundoff.report.plots.curves import calibration_picture
    from roundoff.studies.check_calibration.page import calibration_page

    check_results(args)
    outcome = check_calibration(**given(args, terminal))
    page = calibration_page(outcome.document, View(args.top))
    show(args, terminal, outcome.document, page, pictures=_painter(calibration_picture, outcome.result))
    return outcome.exit_code


_STAGES: dict[Any, str] = {
    "original": "the original inputs; one path serves both sides",
    "preprocessed": "what the model is fed",
    "output": "what the model gives",
    "result": "what post-processing makes of it",
}


@command(
    group(
        "stages",
        *(opt(f"--{stage} PATH...", words, type=str) for stage, words in _STAGES.items()),
        about="Training's files first, the deployed side's second.",
    ),
    group(
        "raw files",
        opt("--shape [STAGE=]AxBxC", "shape of a sample in raw files", action="append", default=[]),
        opt("--dtype [STAGE=]TYPE", "type of raw files, as float32", action="append", default=[]),
        opt("--model FILE", "the float model; says the shapes of raw files"),
    ),
    group(
        "search",
        opt("--scale X", "factor on pixels, as 1/255 (default: 1)", type=number),
        opt("--mean X,Y,Z", "one number or one per channel", type=numbers),
        opt("--std X,Y,Z", "one number or one per channel", type=numbers),
        about="What training does, where it is known: (x * scale - mean) / std.",
    ),
    group(
        "limits",
        opt("--input-tolerance X", "original, preprocessed (default: 1e-4)", type=number, default=1e-4),
        opt("--result-tolerance X", "output and result (default: 1e-3)", type=number, default=1e-3),
        about="Largest absolute difference that passes.",
    ),
    group(
        "output",
        opt("--json", "print the run document instead of the page"),
        HTML,
        opt("-o --output-dir DIR", "write run.json to DIR"),
        FORCE,
    ),
)
def check_io(args: argparse.Namespace, terminal: Terminal) -> int:
    """Compare what a deployed model is fed and gives with what it was in training.

    For each stage give training's files, then the deployed side's: single files or
    folders whose files are named alike; .npy, .npz, raw .bin or pictures. A dash
    stands for a side that is not there. Where a stage differs, the transformation
    between the two is searched for and named: RGB/BGR, range, mean and std, layout,
    resizing, crop, letterbox, int8/uint8, YUV, quantized codes, padded rows.

      roundoff check-io --preprocessed train.npy board.bin
      roundoff check-io --original photos/ --preprocessed train/ board/
    """
    from roundoff.api.checks import check_io
    from roundoff.studies.check_io.page import io_check_page

    # Its --output is a stage; where results go has another name here.
    where = argparse.Namespace(**{**vars(args), "output": args.output_dir})
    if args.force and args.html is None and args.output_dir is None:
        raise BadInput(
            english("--force has no effect without -o or --html."), fix=english("add -o DIR, or leave it out")
        )
    check_results(where)
    said = {"shape": _shapes(args.shape), "dtype": _by_stage("--dtype", args.dtype)}
    outcome = check_io(**{**given(args, None, "output"), **said})
    show(where, terminal, outcome.document, io_check_page(outcome.document))
    return outcome.exit_code


def _shapes(given: list[str]) -> dict[Any, tuple[int, ...]]:
    """The shape of each stage that was named."""
    try:
        return {stage: shape(text) for stage, text in _by_stage("--shape", given).items()}
    except argparse.ArgumentTypeError as error:
        raise BadInput("--shape: {error}.", fix=english("write it as 1x3x224x224"), error=error) from error


def _by_stage(option: str, given: list[str]) -> dict[Any, str]:
    """One value for all stages, or one each."""
    found: dict[Any, str] = {}
    for text in given:
        name, separator, value = text.partition("=")
        chosen = [stage for stage in _STAGES if stage == name] if separator else list(_STAGES)
        if not chosen:
            raise BadInput(
                english("There is no stage {name!r} ({option} {text}).", name=name, option=option, text=text),
                fix=nearest(name, _STAGES),
            )
        for stage in chosen:
            found[stage] = value if separator else text
    return found


@command(
    opt("subject RUN|MODEL", "a folder of 'roundoff quantize', or a quantized .onnx model", type=Path),
    opt("--float FILE", "the float model that MODEL was made from; nodes get its names", dest="float_model"),
    opt("--target NAME|FILE", "judge MODEL by what this target would make of its float model"),
    opt("--nodes GLOB...", "only nodes whose names match, e.g. 'layer4/*' (quote it)"),
    group(
        "output",
        opt("--all", "show every node with its scales, not only findings"),
        opt("--json", "print the audit as JSON instead of the table"),
        opt("--csv FILE", "also write every node to a CSV file"),
        HTML,
        opt("--force", "replace the files of an earlier audit"),
        csv_start="node,op_type,severity,",
    ),
)
def audit(args: argparse.Namespace, terminal: Terminal) -> int:
    """Say for every node which precision was asked for and which it really has.

    Takes a folder that 'roundoff quantize' wrote, and compares its plan with both
    of its models; or any quantized ONNX model: QuantizeLinear/DequantizeLinear or
    operators on integers as onnxruntime, NNCF, AIMET, PPQ, PyTorch and others write
    them, Horizon's calibrated models, AMCT's fake-quant and deploy models.
    Exits with 1 when anything differs that nothing accounts for.
    """
    from roundoff.api.quantization import audit
    from roundoff.core.files import write_text
    from roundoff.pages.blocks import TableBlock, View
    from roundoff.pages.text_files import table_csv
    from roundoff.studies.audit.page import EVERYTHING, audit_page
    from roundoff.studies.audit.result import audit_json

    check_results(args)
    outcome = audit(**given(args), notes=args.all or args.json)
    page = audit_page(outcome.document, View(sort=EVERYTHING if args.all else ""))
    written: list[Path] = []
    if args.csv is not None and page is not None:
        write_text(args.csv, next(table_csv(each) for each in page.blocks if isinstance(each, TableBlock)))
        written.append(args.csv)
    written += write_html(args, outcome.document)
    if args.json:
        terminal.text(audit_json(outcome.result))
    else:
        print_page(terminal, page)
    if written:
        terminal.written(written)
    return outcome.exit_code


@command(opt("--json", "print the measurements as JSON"))
def self_check(args: argparse.Namespace, terminal: Terminal) -> int:
    """Show how this machine computes with integers.

    Small quantized models are run in several ways, and what comes out is
    compared: whether onnxruntime's fused int8 kernels equal the graph, whether
    products of u8 and s8 codes saturate, and whether results depend on threads,
    batches and optimization. Nothing is looked up in a list of processors.
    """
    from roundoff.api.checks import self_check
    from roundoff.core.document import json_text

    outcome = self_check()
    print_page(terminal, json_text(outcome.result.record()) if args.json else outcome.page)
    return outcome.exit_code
