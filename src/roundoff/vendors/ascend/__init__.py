"""Ascend's accuracy comparison: its flags, files, values and messages, on any machine.

`compare_network` is what ``roundoff ascend compare`` runs; `read_rule` tells which offline operator stands for
which originals; `convert_dumps` and `find_overflows` are the commands of those names.
"""

from roundoff.vendors.ascend.advisor import find_overflows, write_overflows
from roundoff.vendors.ascend.comparison import Request, compare_network, write_mapping
from roundoff.vendors.ascend.guide import GuideInput, walk
from roundoff.vendors.ascend.layouts import Conversion, convert_dumps
from roundoff.vendors.ascend.rules import read_rule
from roundoff.vendors.ascend.scenarios import RuleFiles

__all__ = [
    "Conversion",
    "GuideInput",
    "Request",
    "RuleFiles",
    "compare_network",
    "convert_dumps",
    "find_overflows",
    "read_rule",
    "walk",
    "write_mapping",
    "write_overflows",
]
