"""Compare what a deployed model is fed and gives with what it was in training.

For each stage give training's files, then the deployed side's: single files or
folders whose files are named alike; .npy, .npz, raw .bin or pictures. A dash
stands for a side that is not there. Where a stage differs, the transformation
between the two is searched for and named: RGB/BGR, range, mean and std, layout,
resizing, crop, letterbox, int8/uint8, YUV, quantized codes, padded rows.

  roundoff check-io --preprocessed train.npy board.bin
  roundoff check-io --original photos/ --preprocessed train/ board/
"""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.html_option import add_html_option, check_html, write_html
from roundoff.cli.terminal import Terminal
from roundoff.cli.values import number, numbers, shape
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED, BadInput

if TYPE_CHECKING:
    from roundoff.cli.io_sides import RawLayout
    from roundoff.core.document import InputFile, RunDocument
    from roundoff.studies.check_io.result import IoCheck, Stage
    from roundoff.studies.check_io.study import CheckSettings, StageValues

SUMMARY = "is the deployed model fed what it was trained with, and if not, why"

_STAGES: "dict[Stage, str]" = {
    "original": "the original inputs; one path serves both sides",
    "preprocessed": "what the model is fed",
    "output": "what the model gives",
    "result": "what post-processing makes of it",
}
_MISSING = "-"
_BYTE = 255.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    stages = parser.add_argument_group("stages", "Training's files first, the deployed side's second.")
    for stage, words in _STAGES.items():
        stages.add_argument(f"--{stage}", nargs="+", metavar="PATH", help=words)
    files = parser.add_argument_group("raw files")
    files.add_argument(
        "--shape", action="append", default=[], metavar="[STAGE=]AxBxC", help="shape of a sample in raw files"
    )
    files.add_argument(
        "--dtype", action="append", default=[], metavar="[STAGE=]TYPE", help="type of raw files, as float32"
    )
    files.add_argument("--model", type=Path, metavar="FILE", help="the float model; says the shapes of raw files")
    search = parser.add_argument_group(
        "search", "What training does, where it is known: (x * scale - mean) / std."
    )
    search.add_argument("--scale", type=number, metavar="X", help="factor on pixels, as 1/255 (default: 1)")
    search.add_argument("--mean", type=numbers, metavar="X,Y,Z", help="one number or one per channel")
    search.add_argument("--std", type=numbers, metavar="X,Y,Z", help="one number or one per channel")
    limits = parser.add_argument_group("limits", "Largest absolute difference that passes.")
    limits.add_argument(
        "--input-tolerance", type=number, default=1e-4, metavar="X", help="original, preprocessed (default: 1e-4)"
    )
    limits.add_argument(
        "--result-tolerance", type=number, default=1e-3, metavar="X", help="output and result (default: 1e-3)"
    )
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="print the run document instead of the page")
    add_html_option(output)
    output.add_argument("-o", "--output-dir", type=Path, metavar="DIR", help="write run.json to DIR")
    output.add_argument("--force", action="store_true", help="replace what an earlier run wrote")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Read, compare, explain, print; 1 when a stage differs."""
    from roundoff.core.document import DOCUMENT_NAME, to_json
    from roundoff.core.files import check_output_directory
    from roundoff.pages.terminal import terminal_page
    from roundoff.report.run_directory import write_run
    from roundoff.studies.check_io.page import io_check_page
    from roundoff.studies.check_io.study import check_io
    from roundoff.vendors.pulsar2.io_fields import with_fields

    started = time.monotonic()
    paths = _paths(args)
    settings = _settings(args)
    if args.output_dir is not None:
        check_output_directory(args.output_dir, marker=DOCUMENT_NAME, force=args.force)
    elif args.force and args.html is None:
        raise BadInput("--force has no effect without -o or --html.", fix="add -o DIR, or leave it out")
    check_html(args)
    found = with_fields(check_io(_values(args, paths), settings))
    document = _document(args, paths, found, elapsed_s=time.monotonic() - started)
    written = [] if args.output_dir is None else list(write_run(document, args.output_dir, force=args.force))
    written += write_html(args, document)
    if args.json:
        terminal.text(to_json(document))
    elif (page := io_check_page(document)) is not None:
        terminal.print(terminal_page(page))
    if written:
        terminal.written(written)
    return EXIT_OK if found.passed else EXIT_THRESHOLD_MISSED


def _paths(args: argparse.Namespace) -> "dict[Stage, tuple[Path | None, Path | None]]":
    """Both paths of every stage that was given."""
    found: dict[Stage, tuple[Path | None, Path | None]] = {}
    for stage in _STAGES:
        given: list[str] | None = getattr(args, stage)
        if given is None:
            continue
        if len(given) == 1 and stage == "original":
            given = [*given, _MISSING]
        if len(given) != 2:
            raise BadInput(
                f"--{stage} has {len(given)} path(s); two are needed: training's and the deployed side's.",
                fix=f"write --{stage} TRAINING DEPLOYED, with {_MISSING} for a side that is not there",
            )
        one, other = (None if each == _MISSING else Path(each) for each in given)
        if one is None and other is None:
            raise BadInput(f"--{stage} names neither side.", fix=f"give a path, or leave --{stage} out")
        found[stage] = (one, other)
    if not found:
        stages = ", ".join(f"--{stage}" for stage in _STAGES)
        raise BadInput("There is nothing to check.", fix=f"give at least one of {stages}")
    return found


def _settings(args: argparse.Namespace) -> "CheckSettings":
    from roundoff.preprocessing.conventions import MeanStd
    from roundoff.studies.check_io.study import CheckSettings

    for option in ("input_tolerance", "result_tolerance"):
        if getattr(args, option) < 0:
            flag = option.replace("_", "-")
            raise BadInput(f"--{flag} {getattr(args, option):g} is negative.", fix="give 0 or more")
    if args.scale is None and args.mean is None and args.std is None:
        return CheckSettings(args.input_tolerance, args.result_tolerance)
    scale, mean, std = 1.0 if args.scale is None else args.scale, args.mean or (0.0,), args.std or (1.0,)
    if 0 in (scale, *std):
        what = "A scale or std of 0 leaves nothing of a picture."
        raise BadInput(what, fix="give --scale and --std numbers other than 0")
    channels = max(len(mean), len(std))
    if not {len(mean), len(std)} <= {1, channels}:
        raise BadInput(
            f"The mean has {len(mean)} numbers, the std {len(std)}.", fix="give one number, or one per channel"
        )
    mean, std = (values * (channels // len(values)) for values in (mean, std))
    # The same numbers for values from 0 to 1.
    unit = _BYTE * scale
    known = MeanStd("training", tuple(value / unit for value in mean), tuple(value / unit for value in std))
    return CheckSettings(args.input_tolerance, args.result_tolerance, (known,))


def _values(
    args: argparse.Namespace, paths: "dict[Stage, tuple[Path | None, Path | None]]"
) -> "dict[Stage, StageValues]":
    from roundoff.cli.io_sides import read_sides
    from roundoff.studies.check_io.study import StageValues

    layouts = _layouts(args)
    found: dict[Stage, StageValues] = {}
    for stage, (one, other) in paths.items():
        sides = read_sides(one, other, layouts[stage])
        found[stage] = StageValues(sides.names, sides.training, sides.deployed, sides.notes)
    return found


def _layouts(args: argparse.Namespace) -> "dict[Stage, RawLayout]":
    """What is said of the raw files of each stage."""
    from roundoff.cli.io_sides import RawLayout, numeric_type

    shapes = _by_stage("--shape", args.shape)
    types = _by_stage("--dtype", args.dtype)
    for each in types.values():
        numeric_type(each)
    modelled = _model_shapes(args.model) if args.model is not None else {}
    found: dict[Stage, RawLayout] = {}
    for stage in _STAGES:
        text = shapes.get(stage)
        try:
            said = shape(text) if text is not None else modelled.get(stage)
        except argparse.ArgumentTypeError as error:
            raise BadInput(f"--shape: {error}.", fix="write it as 1x3x224x224") from error
        found[stage] = RawLayout(types.get(stage), said)
    return found


def _by_stage(option: str, given: list[str]) -> "dict[Stage, str]":
    """One value for all stages, or one each."""
    found: dict[Stage, str] = {}
    for text in given:
        name, separator, value = text.partition("=")
        chosen = [stage for stage in _STAGES if stage == name] if separator else list(_STAGES)
        if not chosen:
            from roundoff.errors import nearest

            raise BadInput(f"There is no stage {name!r} ({option} {text}).", fix=nearest(name, _STAGES))
        for stage in chosen:
            found[stage] = value if separator else text
    return found


def _model_shapes(path: Path) -> "dict[Stage, tuple[int, ...]]":
    """Shapes of what goes in and comes out; a free first axis counts one."""
    from roundoff.graph.interface import inputs, outputs
    from roundoff.graph.load import load_model
    from roundoff.graph.shapes import tensor_infos

    model = load_model(path)
    found: dict[Stage, tuple[int, ...]] = {}
    fed = inputs(model)
    if len(fed) == 1 and fed[0].shape is not None:
        axes = tuple(
            1 if not place and not isinstance(axis, int) else axis for place, axis in enumerate(fed[0].shape)
        )
        if all(isinstance(axis, int) for axis in axes):
            found["preprocessed"] = tuple(axis for axis in axes if isinstance(axis, int))
    given = outputs(model)
    sizes = {info.name: info.shape for info in tensor_infos(model)}
    if len(given) == 1 and sizes.get(given[0]):
        found["output"] = sizes[given[0]]
    return found


def _document(
    args: argparse.Namespace,
    paths: "dict[Stage, tuple[Path | None, Path | None]]",
    found: "IoCheck",
    *,
    elapsed_s: float,
) -> "RunDocument":
    from roundoff.cli.provenance import environment, input_file
    from roundoff.core.document import SCHEMA, RunDocument

    read: list[InputFile] = []
    for stage, pair in paths.items():
        for side, path in zip(("training", "deployed"), pair, strict=True):
            if path is not None:
                read.append(input_file(f"{stage}, {side}", path))
    if args.model is not None:
        read.append(input_file("model", args.model))
    return RunDocument(
        schema=SCHEMA,
        command=("roundoff", *args.words),
        inputs=tuple(read),
        io_check=found,
        environment=environment(elapsed_s),
    )
