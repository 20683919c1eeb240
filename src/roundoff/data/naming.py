"""Which folder or member of an archive is meant for which input."""

import re
from collections.abc import Sequence

from roundoff.core.names import names_by_stem

__all__ = ["find_named"]

_ODD = re.compile(r"[^A-Za-z0-9]")


def find_named(names: Sequence[str], stems: Sequence[str]) -> dict[str, str | None]:
    """Find the stem that stands for each name, None where there is none or more than one may be meant.

    A stem may be the name itself, the name as roundoff writes it to disk, or, as other programs do it, the name
    with ``_`` for any of its odd characters.
    """
    means = names_by_stem(names)
    # Backwards, because the stems that count most come first and must have the last word.
    known = {means[stem]: stem for stem in reversed(means) if stem in stems}
    return {name: known.get(name) or _alike(name, stems) for name in names}


def _alike(name: str, stems: Sequence[str]) -> str | None:
    alike = [stem for stem in stems if _ODD.sub("_", stem) == _ODD.sub("_", name)]
    return alike[0] if len(alike) == 1 else None
