"""Which tensor of one source is which of another, and in what layout."""

from roundoff.align.aliases import read_aliases
from roundoff.align.layout import find_layout
from roundoff.align.matching import align
from roundoff.align.renaming import rename_after

__all__ = ["align", "find_layout", "read_aliases", "rename_after"]
