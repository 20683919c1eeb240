"""Progress as a protocol of three methods, so that the library is silent unless a front end listens."""

from typing import Protocol

__all__ = ["SILENT", "Progress"]


class Progress(Protocol):
    """Receives how far a long job is."""

    def start(self, title: str, total: int) -> None:
        """A job of `total` steps begins."""
        ...

    def advance(self, steps: int = 1) -> None:
        """So many more steps are done."""
        ...

    def finish(self) -> None:
        """The job that was started last is over, done or not."""
        ...


class _Silent:
    def start(self, title: str, total: int) -> None:
        pass

    def advance(self, steps: int = 1) -> None:
        pass

    def finish(self) -> None:
        pass


SILENT: Progress = _Silent()
