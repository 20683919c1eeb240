"""Ascend's msaccucmp: its sub-commands and flags, under the vendor's names."""

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.options import command, one_of, opt, subcommand, vendor_options
from roundoff.cli.parser import CommandParser
from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED
from roundoff.messages.message import english, shown

if TYPE_CHECKING:
    from roundoff.vendors.ascend.comparison import ComparisonResult, Request
    from roundoff.vendors.ascend.errors import Notes

_MINE = opt("-m --my_dump_path PATH", "folder, or file, under test", required=True)
_GOLDEN = opt("-g --golden_dump_path PATH", "folder, or file, golden", required=True)
_HERE = opt("-out --output DIR", "folder for results (default: here)", default=Path())
_OFFLINE = opt("-f --fusion_rule_file JSON", "offline model as JSON", type=Path)
_NOT_FUSED = opt("-cf --close_fusion_rule_file JSON", "offline model without fusion as JSON", type=Path)
_QUANTIZED = opt("-q --quant_fusion_rule_file JSON", "quantization information of AMCT", type=Path)
_RECORD = opt("--record FILE", "AMCT's record, for scales (beside -q)", type=Path)
_DEPLOY = opt("--deploy MODEL", "the model that was compiled, for scales and replay (beside -q)", type=Path)
_REPLAY = opt("--replay MODEL", "compute every operator again from its own inputs", type=Path)
_VERSION = opt("-v --version", "version of the dumps; has no effect", type=int, choices=[1, 2], default=2)


@command(
    _MINE,
    _GOLDEN,
    opt("-f --fusion_rule_file JSON", "offline model as JSON, or a folder of them", type=Path),
    _QUANTIZED,
    _NOT_FUSED,
    _RECORD,
    _DEPLOY,
    _REPLAY,
    _HERE,
    opt("-c --custom_script_path DIR", "folder of your algorithms and conversions"),
    opt("-a --algorithm_options TEXT", 'their options, "NAME:key=value;..."', default=""),
    opt("-alg --algorithm ALG...", "numbers 0 to 9 or names (all)", default=["all"]),
    opt("-map --mapping", "only write which file belongs to which tensor"),
    opt("-overflow_detection", "look for overflow of float16"),
    opt("-r --range S,E,STEP", "operators from S to E in steps; needs -f"),
    opt("-s --select N,N,...", "operators by their numbers; needs -f"),
    opt("-p --post_process", "for .h5 files, which are not read", type=int, choices=[0, 1]),
    opt("-max --max_cmp_size N", "elements to compare, 0 for all (0)", type=int, default=0),
    opt("-advisor", "say what the table means"),
    _VERSION,
    opt("-op --op_name OP", "compare one tensor of this operator, element by element"),
    one_of(opt("-o --output_tensor N", "its output N (0)"), opt("-i --input_tensor N", "its input N")),
    opt("--ignore_single_op_result", "no tables of all elements"),
    opt("-n --topn N", "how many of the largest errors, 1 to 10000 (20)", type=int),
    opt("-ml --max_line N", "lines per table, 10000 to 1000000 (1000000)", type=int),
    opt("-ffts", "do not join slices of operators"),
    opt(
        "--generation",
        "26: undo device formats before comparing two dumps (8.1)",
        choices=["8.1", "26"],
        default="8.1",
    ),
    opt("--strict-vendor", "reproduce the vendor's tool, also where it drops, crops or exits oddly"),
)
def _compare(found: argparse.Namespace, terminal: Terminal) -> int:
    """Compare a network, or one tensor of it."""
    notes: Notes = found.notes
    from roundoff.vendors.ascend.scenarios import check_flags

    check_flags(found)
    _check_paths(found.my_dump_path, found.golden_dump_path)
    if found.my_dump_path.is_file() and found.golden_dump_path.is_file():
        return _compare_two_files(found, terminal, notes)
    rules = found.fusion_rule_file
    if rules is not None and rules.is_dir():
        from roundoff.vendors.ascend.comparison import batch_requests

        codes = [_network(request, terminal, notes) for request in batch_requests(_request(found), rules)]
        return next((code for code in codes if code), EXIT_OK)
    if found.op_name:
        return _single(found, terminal, notes)
    if found.mapping:
        from roundoff.vendors.ascend.comparison import write_mapping

        path = write_mapping(_request(found), warn=notes.warn)
        terminal.text(f"written: {path}")
        return EXIT_OK
    return _network(_request(found), terminal, notes)


def _check_paths(*paths: Path) -> None:
    from roundoff.vendors.ascend.errors import Code, Refused

    for path in paths:
        if not path.exists():
            raise Refused(
                'The path "{path}" does not exist.', code=Code.PATH, fix=english("check the path"), path=path
            )


def _request(found: argparse.Namespace) -> "Request":
    from roundoff.vendors.ascend.comparison import Request
    from roundoff.vendors.ascend.scenarios import RuleFiles

    files = RuleFiles(found.fusion_rule_file, found.quant_fusion_rule_file, found.close_fusion_rule_file)
    part = found.range is not None or found.select is not None
    return Request(
        found.my_dump_path,
        found.golden_dump_path,
        files,
        out=found.output,
        algorithms=",".join(found.algorithm),
        scripts=found.custom_script_path,
        options=found.algorithm_options,
        overflow=found.overflow_detection,
        advise=found.advisor and not part and not found.op_name,
        span=found.range,
        picked=found.select,
        most=found.max_cmp_size,
        separate_slices=found.ffts,
        strict=found.strict_vendor,
        restore=found.generation != "8.1",
        record=found.record,
        deploy=found.deploy,
        replay=found.replay,
    )


def _network(request: "Request", terminal: Terminal, notes: "Notes") -> int:
    from roundoff.vendors.ascend.comparison import compare_network

    result = compare_network(request, warn=notes.warn, progress=terminal)
    for line in _told(result):
        terminal.text(line)
    return int(result.code)


def _told(result: "ComparisonResult") -> list[str]:
    from roundoff.vendors.ascend.comparison import summarize

    return [*summarize(result), english("written   {path}", path=result.path)]


def _single(found: argparse.Namespace, terminal: Terminal, notes: "Notes") -> int:
    from roundoff.vendors.ascend.comparison import open_job
    from roundoff.vendors.ascend.single import Asked, Detail, find_single, overflowing, write_single

    job = open_job(_request(found), warn=notes.warn)
    role = "output" if found.input_tensor is None else "input"
    index = found.output_tensor if found.input_tensor is None else found.input_tensor
    asked = Asked(found.op_name, role, int(index or 0))
    if job.overflow:
        hits = overflowing(job, asked.op)
        terminal.text(f"overflow  {', '.join(hits) if hits else 'none'} in {asked.op}")
    detail = Detail(
        20 if found.topn is None else found.topn,
        found.max_line or 1_000_000,
        tables=not found.ignore_single_op_result,
        strict=found.strict_vendor,
    )
    single = find_single(job, asked)
    write_single(single, found.output, detail=detail)
    terminal.text(
        f"largest absolute errors of {asked.tensor}\nIndex,{single.axes},NPUDump,GroundTruth,Absolute,Relative"
    )
    for line in detail.largest[:10]:
        terminal.text(line.replace("\t", ""))
    terminal.text(f"written   {found.output / single.prefix}* ({len(detail.written)} files)")
    return EXIT_OK


def _compare_two_files(found: argparse.Namespace, terminal: Terminal, notes: "Notes") -> int:
    from roundoff.vendors.ascend.algorithms import select_algorithms
    from roundoff.vendors.ascend.network import compare_files

    algorithms = select_algorithms(
        ",".join(found.algorithm),
        scripts=found.custom_script_path,
        options=found.algorithm_options,
        warn=notes.warn,
        strict=found.strict_vendor,
    )
    values, messages = compare_files(
        found.my_dump_path, found.golden_dump_path, algorithms=algorithms, warn=notes.warn, most=found.max_cmp_size
    )
    terminal.text("\n".join([*(f"{name}: {value}" for name, value in values.items()), *messages]))
    return EXIT_OK


@command(
    opt("-d --dump_file PATH", "a dump, several with commas, or a folder", required=True, type=str),
    opt("-f --format FORMAT", "format wanted, such as NCHW (as it is)", default=""),
    one_of(
        opt("-o --output_tensor N", "only output N; needs -f", type=int),
        opt("-i --input_tensor N", "only input N; needs -f", type=int),
    ),
    opt("-s --shape 1,3,..", "shape wanted of FRACTAL_NZ; needs -f"),
    opt("-c --custom_script_path DIR", "folder of your conversions; needs -f"),
    _HERE,
    opt("-t --type", "kind of files (npy)", default="npy", choices=["npy", "bin", "msnpy", "pt"]),
    _VERSION,
)
def _convert(found: argparse.Namespace, terminal: Terminal) -> int:
    """Turn dumps into .npy or .bin files."""
    notes: Notes = found.notes
    from roundoff.vendors.ascend.algorithms import own_conversions
    from roundoff.vendors.ascend.errors import Code
    from roundoff.vendors.ascend.layouts import FAILED_NAME, Conversion, convert_dumps
    from roundoff.vendors.ascend.scenarios import check_conversion

    files = check_conversion(found, warn=notes.warn)
    only = None
    for role, index in (("output", found.output_tensor), ("input", found.input_tensor)):
        only = (role, index) if index is not None else only
    shape = tuple(int(size) for size in re.findall(r"[0-9]+", found.shape or ""))
    own = own_conversions(found.custom_script_path, warn=notes.warn) if found.custom_script_path else {}
    conversion = Conversion(found.output, found.type, found.format, shape, only, own)
    written, failed = convert_dumps(files, conversion, warn=notes.warn)
    terminal.text(f"written   {len(written)} files in {found.output}")
    if failed:
        terminal.text(f"failed    {len(failed)} files, listed in {found.output / FAILED_NAME}")
    return int(Code.NOT_PARSED) if failed else EXIT_OK


@command(
    opt("-d --dump_path DIR", "folder of dumps and records", required=True),
    opt("-out --output DIR", "folder for results", required=True),
    opt("-n --top_n N", "the first N, up to 5 (1)", type=int, choices=range(1, 6), default=1),
)
def _overflow(found: argparse.Namespace, terminal: Terminal) -> int:
    """Tell the operators that overflowed first."""
    notes: Notes = found.notes
    from roundoff.vendors.ascend.advisor import find_overflows, write_overflows

    overflows, total = find_overflows(found.dump_path, count=found.top_n, warn=notes.warn)
    if not overflows:
        terminal.text(f"overflow  none in {found.dump_path}")
        return EXIT_OK
    path, text = write_overflows(overflows, found.output, warn=notes.warn)
    terminal.text(text)
    terminal.text(f"overflow  {total} in all, the first {len(overflows)} shown\nwritten   {path}")
    return EXIT_OK


@command(
    opt("-m --my_dump_path PATH", ".npy file under test", required=True),
    opt("-g --golden_dump_path PATH", ".npy file golden", required=True),
    opt("-out --output DIR", "folder for the result", required=True),
)
def _file_compare(found: argparse.Namespace, terminal: Terminal) -> int:
    """Compare two .npy files."""
    notes: Notes = found.notes
    from roundoff.vendors.ascend.algorithms import BUILTIN, FILE_ALGORITHMS
    from roundoff.vendors.ascend.errors import Code, Refused
    from roundoff.vendors.ascend.network import compare_files
    from roundoff.vendors.ascend.rows import stamp, write_private

    for path in (found.my_dump_path, found.golden_dump_path):
        if path.suffix != ".npy":
            what = english("[file_compare] The file '{path}' is invalid.Only support .npy file.", path=path)
            raise Refused(what, code=Code.FILE_TYPE, fix=english("give two .npy files"))
        _check_paths(path)
    algorithms = {name: BUILTIN[name] for name in FILE_ALGORITHMS}
    values, messages = compare_files(
        found.my_dump_path, found.golden_dump_path, algorithms=algorithms, warn=notes.warn
    )
    text = "".join(f"{name}: {value}\n" for name, value in values.items())
    path = found.output / f"file_result_{stamp()}.txt"
    write_private(path, text)
    terminal.text("\n".join([text.rstrip(), *messages, f"written   {path}"]))
    return EXIT_OK


@command(
    opt("-i --input_file CSV", "a result_*.csv", required=True),
    opt("-input_nodes A;B", "names of the model's inputs", default=""),
    opt("-o --out_path DIR", "write advisor_summary.txt there"),
)
def _advisor(found: argparse.Namespace, terminal: Terminal) -> int:
    """Say what a table of results means."""
    notes: Notes = found.notes
    from roundoff.vendors.ascend.advisor import advise, read_table, write_advice
    from roundoff.vendors.ascend.comparison import wrapped

    rows, columns = read_table(found.input_file)
    advice = advise(rows, columns=columns, inputs=[name for name in found.input_nodes.split(";") if name])
    if advice is None:
        notes.warn("The table has no cosine similarity to judge by.")
        return EXIT_OK
    terminal.text("\n".join(wrapped(advice)))
    if found.out_path is not None:
        write_advice(found.out_path, advice)
    return EXIT_OK


@command(
    opt("--float DIR", "golden data of the float original"),
    opt("--fake-quant DIR", "golden data of the fake-quant original"),
    opt("--npu DIR", "dump of the offline model"),
    opt("--npu-off DIR", "dump of the offline model without fusion"),
    _OFFLINE,
    _NOT_FUSED,
    _QUANTIZED,
    _RECORD,
    _DEPLOY,
    _REPLAY,
    opt("--float-accuracy PERCENT", "accuracy of the float original", type=float),
    opt("--quant-accuracy PERCENT", "accuracy of the quantized model", type=float),
    opt("--calibration N|DIR", "samples of the calibration set, or how many", default=""),
    opt("-out --output DIR", "folder for tables (default: here)", default=Path()),
)
def _guide(found: argparse.Namespace, terminal: Terminal) -> int:
    """Walk the vendor's guide on the data at hand."""
    notes: Notes = found.notes
    from roundoff.messages.lines import wrapped_lines
    from roundoff.vendors.ascend.guide import GuideInput, walk

    given = GuideInput(
        found.float, found.fake_quant, found.npu, found.npu_off, found.fusion_rule_file,
        found.close_fusion_rule_file, found.quant_fusion_rule_file, found.float_accuracy, found.quant_accuracy,
        found.calibration, found.record, found.deploy, found.replay,
    )  # fmt: skip
    quiet: list[str] = []
    steps = walk(given, out=found.output, warn=quiet.append, progress=terminal)
    for step in steps:
        mark = "BAD" if step.bad else "--" if step.skipped else "note" if step.noted else "ok"
        terminal.text(f"{mark:<4} {shown(step.title)}")
        then = [english("next: {advice}", advice=step.advice)] if step.advice else []
        for text in (step.verdict, *then):
            terminal.text("\n".join(wrapped_lines(shown(text), 74, first=" " * 5, others=" " * 5)))
    if quiet:
        notes.warn(
            english(
                "{count} tensors or operators could not be compared; the tables in {folder} say why",
                count=len(quiet),
                folder=found.output,
            )
        )
    return EXIT_THRESHOLD_MISSED if any(step.bad for step in steps) else EXIT_OK


_SUBCOMMANDS = {
    "compare": _compare,
    "convert": _convert,
    "overflow": _overflow,
    "file_compare": _file_compare,
    "advisor": _advisor,
    "guide": _guide,
}


@command(vendor_options(_SUBCOMMANDS))
def ascend(args: argparse.Namespace, terminal: Terminal) -> int:
    """Ascend's msaccucmp: its sub-commands, flags and files, without its toolkit.

      roundoff ascend compare -m NPU -g GOLDEN -f om.json -out DIR
      roundoff ascend compare -m NPU -g GOLDEN -f om.json -op conv1
      roundoff ascend convert -d DUMP -out DIR [-f NCHW]
      roundoff ascend overflow -d DIR -out DIR
      roundoff ascend file_compare -m A.npy -g B.npy -out DIR
      roundoff ascend advisor -i result.csv
      roundoff ascend guide --float DIR --npu DIR -f om.json -out DIR

    NPU is the folder of one inference; GOLDEN holds .npy files of the original
    model, or another dump. 'roundoff ascend SUB -h' lists flags.
    """
    name = args.sub.replace("-", "_")
    chosen = subcommand(name, _SUBCOMMANDS)
    found = CommandParser(prog=f"roundoff ascend {name}", allow_abbrev=False).taught(chosen, args.rest)
    from roundoff.vendors.ascend.errors import Notes
    from roundoff.vendors.ascend.scenarios import check_output

    if getattr(found, "output", None) is not None:
        check_output(found.output)
    found.notes = Notes(terminal.note, strict=getattr(found, "strict_vendor", False))
    return int(found.execute(found, terminal))
