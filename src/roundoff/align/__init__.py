"""Which tensor of one source is which of another, and in what layout."""

from roundoff.align.alignment import align, rename_after
from roundoff.align.layout import find_layout
from roundoff.align.names import read_aliases

__all__ = ["align", "find_layout", "read_aliases", "rename_after"]
