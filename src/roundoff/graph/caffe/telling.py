"""What should be known of a net that was read: which layers its model does not have, and what was assumed."""

import logging
from collections.abc import Iterator

from roundoff.graph.caffe.importing import Dropped, Imported

__all__ = ["dropped_text", "tell"]

_LOGGER = logging.getLogger("roundoff.graph.caffe")
_SHOWN = 3


def tell(imported: Imported) -> None:
    """Say it, as warnings of a logger; the command line prints them, each once."""
    for text in _texts(imported):
        _LOGGER.warning("%s", text)


def _texts(imported: Imported) -> Iterator[str]:
    if imported.dropped:
        yield f"{imported.net.path}: {dropped_text(imported.dropped)}"
    for note in imported.notes:
        yield f"{imported.net.path}: {note}"


def dropped_text(dropped: tuple[Dropped, ...]) -> str:
    """Dropped layers in one line, the first of them with the reasons."""
    few = [f"{each.name} ({each.type}) {each.why}" for each in dropped[:_SHOWN]]
    if len(dropped) > _SHOWN:
        few.append(f"{len(dropped) - _SHOWN} more; 'roundoff convert' lists them")
    count = "1 layer is" if len(dropped) == 1 else f"{len(dropped)} layers are"
    return f"{count} left out: {'; '.join(few)}"
