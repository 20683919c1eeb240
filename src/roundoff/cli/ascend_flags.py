"""The flags of Ascend's sub-commands, under the vendor's names."""

import argparse
from pathlib import Path

from roundoff.cli.parser import CommandParser

__all__ = ["PARSERS", "parser_of"]

_STRICT = "reproduce the vendor's tool, also where it drops, crops or exits oddly"


def _compare(parser: argparse.ArgumentParser) -> None:
    _two_sides(parser, "folder, or file,")
    add = parser.add_argument
    add("-f", "--fusion_rule_file", type=Path, metavar="JSON", help="offline model as JSON, or a folder of them")
    add("-q", "--quant_fusion_rule_file", type=Path, metavar="JSON", help="quantization information of AMCT")
    add("-cf", "--close_fusion_rule_file", type=Path, metavar="JSON", help="offline model without fusion as JSON")
    add("-out", "--output", type=Path, default=Path(), metavar="DIR", help="folder for results (default: here)")
    add("-c", "--custom_script_path", type=Path, metavar="DIR", help="folder of your algorithms and conversions")
    add("-a", "--algorithm_options", default="", metavar="TEXT", help='their options, "NAME:key=value;..."')
    add("-alg", "--algorithm", nargs="+", default=["all"], metavar="ALG", help="numbers 0 to 9 or names (all)")
    add("-map", "--mapping", action="store_true", help="only write which file belongs to which tensor")
    add("-overflow_detection", action="store_true", help="look for overflow of float16")
    add("-r", "--range", metavar="S,E,STEP", help="operators from S to E in steps; needs -f")
    add("-s", "--select", metavar="N,N,...", help="operators by their numbers; needs -f")
    add("-p", "--post_process", type=int, choices=[0, 1], help="for .h5 files, which are not read")
    add("-max", "--max_cmp_size", type=int, default=0, metavar="N", help="elements to compare, 0 for all (0)")
    add("-advisor", action="store_true", help="say what the table means")
    add("-v", "--version", type=int, choices=[1, 2], default=2, help="version of the dumps; has no effect")
    add("-op", "--op_name", metavar="OP", help="compare one tensor of this operator, element by element")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("-o", "--output_tensor", metavar="N", help="its output N (0)")
    which.add_argument("-i", "--input_tensor", metavar="N", help="its input N")
    add("--ignore_single_op_result", action="store_true", help="no tables of all elements")
    add("-n", "--topn", type=int, metavar="N", help="how many of the largest errors, 1 to 10000 (20)")
    add("-ml", "--max_line", type=int, metavar="N", help="lines per table, 10000 to 1000000 (1000000)")
    add("-ffts", action="store_true", help="do not join slices of operators")
    add("--generation", choices=["8.1", "26"], default="8.1",
        help="26: undo device formats before comparing two dumps (8.1)")  # fmt: skip
    add("--strict-vendor", action="store_true", help=_STRICT)


def _convert(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-d", "--dump_file", required=True, metavar="PATH", help="a dump, several with commas, or a folder")
    add("-f", "--format", default="", help="format wanted, such as NCHW (as it is)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("-o", "--output_tensor", type=int, metavar="N", help="only output N; needs -f")
    which.add_argument("-i", "--input_tensor", type=int, metavar="N", help="only input N; needs -f")
    add("-s", "--shape", metavar="1,3,..", help="shape wanted of FRACTAL_NZ; needs -f")
    add("-c", "--custom_script_path", type=Path, metavar="DIR", help="folder of your conversions; needs -f")
    add("-out", "--output", type=Path, default=Path(), metavar="DIR", help="folder for results (default: here)")
    add("-t", "--type", default="npy", choices=["npy", "bin", "msnpy", "pt"], help="kind of files (npy)")
    add("-v", "--version", type=int, choices=[1, 2], default=2, help="version of the dumps; has no effect")


def _overflow(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-d", "--dump_path", type=Path, required=True, metavar="DIR", help="folder of dumps and records")
    add("-out", "--output", type=Path, required=True, metavar="DIR", help="folder for results")
    add("-n", "--top_n", type=int, choices=range(1, 6), default=1, metavar="N", help="the first N, up to 5 (1)")


def _file_compare(parser: argparse.ArgumentParser) -> None:
    _two_sides(parser, ".npy file")
    parser.add_argument("-out", "--output", type=Path, required=True, metavar="DIR", help="folder for the result")


def _advisor(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-i", "--input_file", type=Path, required=True, metavar="CSV", help="a result_*.csv")
    add("-input_nodes", default="", metavar="A;B", help="names of the model's inputs")
    add("-o", "--out_path", type=Path, metavar="DIR", help="write advisor_summary.txt there")


def _guide(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    for flag, what in (
        ("--float", "golden data of the float original"),
        ("--fake-quant", "golden data of the fake-quant original"), ("--npu", "dump of the offline model"),
        ("--npu-off", "dump of the offline model without fusion"),
    ):  # fmt: skip
        add(flag, type=Path, metavar="DIR", help=what)
    add("-f", "--fusion_rule_file", type=Path, metavar="JSON", help="offline model as JSON")
    add("-cf", "--close_fusion_rule_file", type=Path, metavar="JSON", help="offline model without fusion as JSON")
    add("-q", "--quant_fusion_rule_file", type=Path, metavar="JSON", help="quantization information of AMCT")
    add("--float-accuracy", type=float, metavar="PERCENT", help="accuracy of the float original")
    add("--quant-accuracy", type=float, metavar="PERCENT", help="accuracy of the quantized model")
    add("--calibration", default="", metavar="N|DIR", help="samples of the calibration set, or how many")
    add("-out", "--output", type=Path, default=Path(), metavar="DIR", help="folder for tables (default: here)")


def _two_sides(parser: argparse.ArgumentParser, what: str) -> None:
    for flag, name, side in (("-m", "--my_dump_path", "under test"), ("-g", "--golden_dump_path", "golden")):
        parser.add_argument(flag, name, type=Path, required=True, metavar="PATH", help=f"{what} {side}")


PARSERS = {
    "compare": (_compare, "Compare a network, or one tensor of it."),
    "convert": (_convert, "Turn dumps into .npy or .bin files."),
    "overflow": (_overflow, "Tell the operators that overflowed first."),
    "file_compare": (_file_compare, "Compare two .npy files."),
    "advisor": (_advisor, "Say what a table of results means."),
    "guide": (_guide, "Walk the vendor's guide on the data at hand."),
}
"""Sub-commands: how their flags are declared, and what they do."""


def parser_of(name: str) -> argparse.ArgumentParser:
    """The parser of a sub-command."""
    declare, summary = PARSERS[name]
    parser = CommandParser(prog=f"roundoff ascend {name}", description=summary, allow_abbrev=False)
    declare(parser)
    return parser
