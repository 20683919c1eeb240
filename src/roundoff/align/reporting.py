"""Progress as a block, so that it is finished whatever happens in it."""

import contextlib
from collections.abc import Iterator

from roundoff.core.progress import Progress

__all__ = ["reported"]


@contextlib.contextmanager
def reported(progress: Progress, title: str, total: int) -> Iterator[None]:
    """Announce a job of `total` steps and that it is over, done or not."""
    progress.start(title, total)
    try:
        yield
    finally:
        progress.finish()
