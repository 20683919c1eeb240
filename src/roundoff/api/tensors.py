"""Files of tensors and models, as functions: dump and convert."""

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from roundoff.api.call import Call, DataOptions, Limits, public
from roundoff.api.inputs import (
    ModelLike,
    PathLike,
    as_path,
    data_inputs,
    describe_value,
    file_inputs,
    is_path,
    open_model,
)
from roundoff.api.outcome import PageOutcome
from roundoff.api.subject import samples_for
from roundoff.core.document import bytes_input
from roundoff.core.files import (
    DiskBudget,
    caffe_pair,
    check_output_directory,
    disk_budget,
    is_caffe,
    is_model,
    output_directory,
    pair_path,
    write_text,
)
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED, BadInput, nearest
from roundoff.messages.catalogue import plain
from roundoff.messages.message import english
from roundoff.messages.numbers import counted, format_size, parse_size

if TYPE_CHECKING:
    from roundoff.core.progress import Progress
    from roundoff.core.tensors import TensorInfo, TensorSource
    from roundoff.graph.caffe.convert import Imported
    from roundoff.graph.load import Model
    from roundoff.measure.statistics import TensorSummary
    from roundoff.pages.blocks import Page
    from roundoff.run.capture import Estimate, LiveSource, Samples

MAP_NAME = "tensors.json"
"""Lists the files of a dump."""
STATS_NAME = "stats.json"
STATS_TABLE_NAME = "stats.csv"
_CONVERTED = "conversion.json"
_WRITTEN_AS = ("npy", "npz", "bin", "ascend-npy")
# By these an earlier dump or conversion is known; either kind may replace the other.
_DUMPS, _CONVERSIONS = (MAP_NAME, STATS_NAME), (MAP_NAME, _CONVERTED)
# What a tensor takes besides its values: a file header, a line in the map, a part of a disk block.
_OVERHEAD_BYTES = 512

_Tell = Callable[[str], None]


def _silent(_: str) -> None:
    """Nobody is told."""


@dataclass(frozen=True, slots=True)
class TensorDump:
    """What was written.

    Attributes:
        folder: Where.
        format: How tensors are stored; empty for statistics alone.
        tensors: How many.
        samples: Of which samples.
        size_bytes: Size of the values.
        statistics: Of each tensor, where these were asked for instead.
    """

    folder: Path
    format: str
    tensors: int
    samples: tuple[str, ...]
    size_bytes: int = 0
    statistics: "tuple[TensorSummary, ...]" = ()


def _page(name: str, rows: Sequence[tuple[str, Any]]) -> "Page":
    """A page of one table: what, and how much."""
    from roundoff.pages.blocks import Column, Page, TableBlock

    columns = (Column("what", plain("what"), "text"), Column("value", plain("value"), "text"))
    shown = tuple((key, str(value)) for key, value in rows)
    return Page(name, plain(name), (TableBlock(name, plain(name), columns, shown),))


@public
def dump(
    model: ModelLike,
    output: PathLike,
    *,
    tensors: str | Sequence[str] = (),
    stats_only: bool = False,
    format: str | None = None,
    force: bool = False,
    max_disk: int | str | None = None,
    tell: _Tell = _silent,
    **options: Unpack[DataOptions],
) -> PageOutcome[TensorDump]:
    """Run a model and write every tensor it computes, or their statistics.

    Args:
        model: The model.
        output: The folder; it appears whole or not at all.
        tensors: Write only tensors whose names match.
        stats_only: Write the statistics of each tensor, not its values.
        format: How tensors are stored: ``npy``, ``npz``, ``bin``, ``ascend-npy``.
        force: Replace an earlier dump.
        max_disk: Refuse to write more.
        tell: Told how patterns were understood, what is left out, and the estimate.
        options: What the model is fed, and what the run may take.
    """
    call = Call("dump", options, DataOptions)
    if stats_only and format:
        what = english(
            "--format {format} has no effect with --stats-only, which writes no tensors.", format=format
        )
        raise BadInput(what, fix=english("leave one of them out"))
    if format is not None and format not in _WRITTEN_AS:
        raise BadInput(english("There is no format {format!r}.", format=format), fix=nearest(format, _WRITTEN_AS))
    folder = as_path(output, option="-o")
    check_output_directory(folder, marker=_DUMPS, force=force)
    given = open_model(model)
    samples = samples_for(call, given.model)
    for name in getattr(samples, "skipped", ()):
        tell(f"not taken for a sample: {name}")
    patterns = [tensors] if isinstance(tensors, str) else list(tensors)
    source, tops = _captured(call, given.model, samples, patterns, stats_only=stats_only, tell=tell)
    disk = disk_budget(folder, parse_size(max_disk) if isinstance(max_disk, str) else max_disk)
    tell(_described(source.estimate, stats_only=stats_only))
    disk.check(_disk_bytes(source.estimate, stats_only=stats_only), claim=english("The dump takes about"))
    with contextlib.closing(source):
        if stats_only:
            found = _write_statistics(call, source, folder, force=force)
        else:
            form = format or "npy"
            named = _named(source, tell, tops=tops if form == "ascend-npy" else {})
            found = _write_tensors(call, source, named, TensorDump(folder, form, 0, ()), disk=disk, force=force)
    rows = [("folder", folder), ("tensors", found.tensors), ("samples", len(found.samples))]
    rows += [] if stats_only else [("size", format_size(found.size_bytes))]
    inputs = (given.origin("model"), *data_inputs("data", call.get("data"), samples))
    return PageOutcome(found, call.document(inputs), shown=_page("dump", rows))


def _captured(
    call: Call, model: Any, samples: "Samples", patterns: list[str], *, stats_only: bool, tell: _Tell
) -> "tuple[LiveSource, Mapping[str, tuple[str, int]]]":
    """The tensors to write, and the layers of a Caffe net they are tops of."""
    from roundoff.graph.caffe.convert import layer_tops
    from roundoff.graph.interface import hidden_tensors
    from roundoff.run.capture import LiveSource
    from roundoff.run.session import share_threads

    threads = share_threads(call.threads)[0] if stats_only else call.threads
    source = LiveSource(
        model, samples, tensors=patterns, max_memory=call.max_memory, threads=threads, option="--tensors"
    )
    for pattern, count in source.selection.matches:
        tell(f"--tensors {pattern!r}: {counted(count, 'tensor')}")
    for info in source.tensors:
        if info.problem:
            tell(f"left out: tensor {info.name!r}, because {info.problem}")
    hidden = Counter() if patterns else Counter(hidden_tensors(model).values())
    for node, count in hidden.items():
        inside = counted(count, "tensor")
        tell(f"left out: {inside} inside node {node!r}, which cannot be seen from outside")
    if source.estimate.tensors == 0:
        raise BadInput(
            english("None of the tensors asked for can be written."), fix=english("choose others with --tensors")
        )
    return source, layer_tops(model)


def _described(estimate: "Estimate", *, stats_only: bool) -> str:
    disk = format_size(_disk_bytes(estimate, stats_only=stats_only))
    text = english(
        "estimate: {tensors} {tensors:tensor|tensors} x {samples} {samples:sample|samples}, {disk} on disk, "
        "{memory} of memory",
        tensors=estimate.tensors,
        samples=estimate.samples,
        disk=disk if estimate.exact else english("about {size}", size=disk),
        memory=format_size(estimate.memory_bytes),
    )
    if estimate.passes == 1:
        return text
    return english(
        "{estimate}\n  {passes} passes per sample, to stay within the memory",
        estimate=text,
        passes=estimate.passes,
    )


def _disk_bytes(estimate: "Estimate", *, stats_only: bool) -> int:
    if stats_only:
        return _OVERHEAD_BYTES * estimate.tensors
    return estimate.samples * (estimate.sample_bytes + _OVERHEAD_BYTES * estimate.tensors)


def _write_statistics(call: Call, source: "LiveSource", folder: Path, *, force: bool) -> TensorDump:
    from roundoff.measure.statistics import summarize_tensors
    from roundoff.report.statistics import statistics_csv, statistics_json
    from roundoff.run.session import share_threads

    with output_directory(folder, marker=_DUMPS, force=force) as staged:
        found = tuple(summarize_tensors(source, threads=share_threads(call.threads)[1], progress=call.progress))
        write_text(staged / STATS_TABLE_NAME, statistics_csv(found))
        write_text(staged / STATS_NAME, statistics_json(found))
    return TensorDump(folder, "", len(found), tuple(source.samples), statistics=found)


def _named(
    source: "LiveSource", tell: _Tell, *, tops: "Mapping[str, tuple[str, int]]"
) -> "list[tuple[TensorInfo, int]]":
    """The tensors to write and which output each is: of its node, or, where `tops` knows it, of its layer."""
    readable = [info for info in source.tensors if not info.problem]
    if not tops:
        return [(info, source.output_index(info.name)) for info in readable]
    steps = [info.name for info in readable if info.name not in tops]
    if steps:
        tell(f"left out: {counted(len(steps), 'tensor')} inside layers, such as {steps[0]!r}")
    known = [(info, *tops[info.name]) for info in readable if info.name in tops]
    return [(replace(info, node=layer), index) for info, layer, index in known]


def _write_tensors(
    call: Call,
    source: "LiveSource",
    named: "list[tuple[TensorInfo, int]]",
    begun: TensorDump,
    *,
    disk: DiskBudget,
    force: bool,
) -> TensorDump:
    from roundoff.tensors.writer import open_writer

    size_bytes = 0
    call.progress.start("dumping", len(source.samples))
    with (
        output_directory(begun.folder, marker=_DUMPS, force=force) as staged,
        open_writer(staged, begun.format, samples=source.samples) as writer,  # type: ignore[arg-type]
    ):
        for sample in source.samples:
            writer.begin_sample(sample)
            for info, index in named:
                array = source.read(info.name, sample)
                size_bytes += array.nbytes
                disk.check(
                    size_bytes, claim=english("Samples are larger than the first one; the dump has come to")
                )
                writer.write(info, array, output_index=index)
            call.progress.advance()
    call.progress.finish()
    return replace(begun, tensors=len(named), samples=tuple(source.samples), size_bytes=size_bytes)


# Converting.


@dataclass(frozen=True, slots=True)
class TensorConversion:
    """Tensor files that became others.

    Attributes:
        output: The folder.
        format: How tensors are stored now, or their memory format.
        tensors: How many arrays were written.
        known: How many tensors there are.
        samples: Of which samples.
        size_bytes: Size of the values.
        files: Names of the files, where dumps were converted one by one.
        failed: What could not be read, and why.
        notes: What was said of files.
    """

    output: Path
    format: str
    tensors: int
    known: int = 0
    samples: tuple[str, ...] = ()
    size_bytes: int = 0
    files: tuple[str, ...] = ()
    failed: "Mapping[str, str]" = ()  # type: ignore[assignment]
    notes: tuple[str, ...] = ()


@public
def convert(
    source: Any,
    output: PathLike,
    *,
    weights: PathLike | None = None,
    to: str | None = None,
    layout: str | None = None,
    shape: Sequence[int] | None = None,
    input_shape: Mapping[str, Sequence[int]] | Sequence[int] | None = None,
    random_weights: bool = False,
    force: bool = False,
    progress: "Progress | None" = None,
) -> "PageOutcome[Imported | Model | TensorConversion]":
    """Convert a model to ONNX, or tensor files to others.

    Args:
        source: A Caffe net, a .tflite or OpenVINO .xml, or a file or folder of tensors.
        output: The .onnx file, or the folder, to write.
        weights: The net's numbers; the file beside it when None.
        to: How tensors are stored: ``npy``, ``npz``, ``bin``, ``ascend-npy``.
        layout: Memory format of device dumps, such as NCHW.
        shape: Shape of FRACTAL_NZ tensors, with `layout`.
        input_shape: Shapes of a net's inputs instead of those in its .prototxt, by name; of its only input, one.
        random_weights: Draw the numbers of a net that has no .caffemodel.
        force: Replace what is there.
        progress: Told how far it is.
    """
    if isinstance(source, tuple | list) and len(source) == 2 and weights is None:
        source, weights = source
    if not is_path(source):
        raise BadInput(
            english("What is to be converted is {said_of}.", said_of=describe_value(source)),
            fix=english("give a .prototxt, or files of tensors"),
        )
    limits: Limits = {} if progress is None else {"progress": progress}
    call = Call("convert", limits, Limits)
    path, target = Path(source), as_path(output, option="-o")
    if to is not None and to not in _WRITTEN_AS:
        raise BadInput(english("There is no format {to!r}.", to=to), fix=nearest(to, _WRITTEN_AS))
    as_net = is_caffe(path) or path.suffix.lower() == ".onnx"
    if not as_net:
        _refuse_for_nets(path, weights, {"--input-shape": input_shape, "--random-weights": random_weights})
    if not is_model(path):
        found = _converted(call, path, target, to=to, layout=layout, shape=shape, force=force)
        code = EXIT_THRESHOLD_MISSED if found.failed else EXIT_OK
        rows = [
            ("folder", target),
            ("arrays", found.tensors),
            ("format", found.format),
            ("failed", len(found.failed)),
        ]
        return PageOutcome(
            found, call.document(file_inputs(("tensors", path))), code, shown=_page("convert", rows)
        )
    for option, value in (("--to", to), ("--format", layout), ("--shape", shape)):
        if value is not None:
            raise BadInput(
                english("{option} is for files of tensors, not for nets.", option=option),
                fix=english("leave out {option}", option=option),
            )
    if not as_net:
        model = _rewritten_model(path, target, force=force)
        about = [("model", target), ("nodes", len(model.proto.graph.node))]
        return PageOutcome(model, call.document(file_inputs(("model", path))), shown=_page("convert", about))
    shapes = {"": input_shape} if isinstance(input_shape, Sequence) else input_shape
    imported = _imported(path, weights, target, shapes=shapes, fill=random_weights, force=force)
    graph = imported.model.proto.graph
    rows = [("model", target), ("layers", len(imported.net.layers)), ("nodes", len(graph.node))]
    rows += [("dropped", each.name) for each in imported.dropped]
    net = imported.net
    given = (
        # Without its numbers it is no pair, whatever lies beside it.
        (bytes_input("model", str(path), net.path.read_bytes()),)
        if net.weights_path is None
        else file_inputs(("model", pair_path(net.path, net.weights_path)))
    )
    return PageOutcome(imported, call.document(given), shown=_page("convert", rows))


def _refuse_for_nets(path: Path, weights: PathLike | None, options: Mapping[str, Any]) -> None:
    """Refuse what only says something of a Caffe net."""
    if weights is not None:
        what = english("{path} is no Caffe net, so that {weights} means nothing.", path=path, weights=weights)
        raise BadInput(what, fix=english("roundoff convert net.prototxt net.caffemodel -o net.onnx"))
    for option, wanted in options.items():
        if wanted:
            raise BadInput(
                "{option} is for Caffe nets.", fix=english("leave out {option}", option=option), option=option
            )


def _rewritten_model(path: Path, target: Path, *, force: bool) -> "Model":
    from roundoff.graph.load import load_model
    from roundoff.graph.save import save_model

    _check_ending(target)
    model = load_model(path)
    save_model(model, target, replace=force)
    return model


def _check_ending(target: Path) -> None:
    if target.suffix.lower() != ".onnx":
        what = english(
            "-o {target} does not end in .onnx, so that no program would take it for a model.", target=target
        )
        raise BadInput(what, fix=english("-o {with_suffix}", with_suffix=target.with_suffix(".onnx")))


def _imported(
    path: Path,
    weights: PathLike | None,
    target: Path,
    *,
    shapes: Mapping[str, Sequence[int]] | None,
    fill: bool,
    force: bool,
) -> "Imported":
    from roundoff.graph.caffe.convert import import_caffe
    from roundoff.graph.save import save_model

    _check_ending(target)
    if not is_caffe(path):
        what = english("{path} is no Caffe net; those are called .prototxt.", path=path)
        raise BadInput(what, fix=english("roundoff convert net.prototxt net.caffemodel -o net.onnx"))
    pair: tuple[Path, Path | None] = (path, None)
    if not fill or weights is not None or "," in path.name:
        pair = caffe_pair(path if weights is None else Path(f"{path},{weights}"))
    imported = import_caffe(*pair, shapes=shapes, fill=fill)
    save_model(imported.model, target, replace=force)
    return imported


def _converted(
    call: Call,
    source: Path,
    output: Path,
    *,
    to: str | None,
    layout: str | None,
    shape: Sequence[int] | None,
    force: bool,
) -> TensorConversion:
    from roundoff.tensors import open_source

    if layout is not None:
        return _in_layout(source, output, to=to, layout=layout, shape=tuple(shape or ()), force=force)
    if shape is not None:
        raise BadInput(
            english("--shape has no effect without --format."), fix=english("add --format, e.g. --format ND")
        )
    check_output_directory(output, marker=_CONVERSIONS, force=force)
    opened = open_source(source, every_run=True)
    problems = {info.name: info.problem for info in opened.tensors if info.problem}
    found = TensorConversion(output, to or "npy", 0, len(opened.tensors), tuple(opened.samples))
    return _rewritten(call, opened, found, problems, force=force)


def _rewritten(
    call: Call, source: "TensorSource", begun: TensorConversion, problems: dict[str, str], *, force: bool
) -> TensorConversion:
    """Write what can be read."""
    from roundoff.tensors.writer import open_writer

    written = size_bytes = 0
    call.progress.start("converting", len(source.samples))
    with (
        output_directory(begun.output, marker=_CONVERSIONS, force=force) as staged,
        open_writer(staged, begun.format, samples=source.samples) as writer,  # type: ignore[arg-type]
    ):
        for sample in source.samples:
            writer.begin_sample(sample)
            for info in source.tensors:
                if info.problem:
                    continue
                try:
                    array = source.read(info.name, sample)
                except BadInput as error:
                    problems[info.name] = error.what.rstrip(".")
                    continue
                writer.write(info, array)
                written, size_bytes = written + 1, size_bytes + array.nbytes
            call.progress.advance()
        if not written:
            raise BadInput(
                english("Nothing in {label} can be read.", label=source.label),
                fix=next(iter(problems.values()), "look into it"),
            )
    call.progress.finish()
    return replace(begun, tensors=written, size_bytes=size_bytes, failed=problems)


def _in_layout(
    source: Path, output: Path, *, to: str | None, layout: str, shape: tuple[int, ...], force: bool
) -> TensorConversion:
    """Tensors of device dumps in a memory format that was asked for."""
    from roundoff.core.document import json_text
    from roundoff.tensors import ascend_dump
    from roundoff.tensors.ascend_dump.header import FORMAT_NUMBERS
    from roundoff.vendors.ascend.layouts import Conversion, convert_dumps

    if to not in (None, "npy"):
        what = english("--format writes .npy files, not {to}.", to=to)
        raise BadInput(
            what,
            fix=english("leave out --to, then: roundoff convert {output} --to {to} -o DIR", output=output, to=to),
        )
    if layout not in FORMAT_NUMBERS:
        raise BadInput("The format {layout!r} is not known.", fix=nearest(layout, FORMAT_NUMBERS), layout=layout)
    if not ascend_dump.sniff(source):
        what = english(
            "{source} holds no device dumps, and only these have memory formats to convert from.", source=source
        )
        raise BadInput(what, fix=english("leave out --format"))
    files = [source] if source.is_file() else sorted(path for path in source.rglob("*") if _is_dump(path))
    check_output_directory(output, marker=_CONVERSIONS, force=force)
    told: list[str] = []
    with output_directory(output, marker=_CONVERSIONS, force=force) as staged:
        conversion = Conversion(staged, "npy", layout, shape)
        written, failed = convert_dumps(files, conversion, warn=told.append)
        if not written:
            raise BadInput(
                english("Nothing in {source} can be converted: {told}", source=source, told=told[0]),
                fix=english("choose another --format"),
            )
        found = TensorConversion(
            output,
            layout,
            len(written),
            files=tuple(path.name for path in written),
            failed=dict.fromkeys(map(str, failed), "not converted"),
            notes=tuple(told),
        )
        record = {"format": layout, "files": list(found.files), "failed": list(found.failed)}
        write_text(staged / _CONVERTED, json_text(record))
    return found


def _is_dump(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(".") and path.suffix not in (".csv", ".txt", ".json")
