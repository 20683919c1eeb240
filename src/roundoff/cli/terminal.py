"""The terminal: results on stdout, everything else on stderr, progress only where someone watches."""

import contextlib
import io
import logging
import os
import signal
import sys
import time
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.machinery import ExtensionFileLoader
from typing import TYPE_CHECKING, NoReturn

from roundoff.core.names import shown
from roundoff.errors import BadInput, RoundoffError
from roundoff.messages.catalogue import translate
from roundoff.messages.message import Message, english, escape_control
from roundoff.messages.message import shown as text_of

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console, RenderableType
    from rich.progress import Progress as RichProgress
    from rich.segment import Segment

    from roundoff.core.progress import ProgressFile


# Progress is shown for anything longer than this (design, section 8).
_QUIET_S = 2.0
# What a line begins with that continues another, and the least that is left for its words.
_INDENT, _NARROWEST = "  ", 20


class Terminal:
    """Where a command prints. Also a `roundoff.core.progress.Progress`."""

    def __init__(self) -> None:
        self._bar: RichProgress | None = None
        self._title = ""
        self._total = 0
        self._done = 0
        self._started = 0.0
        self._file: ProgressFile | None = None
        self._passing = False

    @cached_property
    def out(self) -> "Console":
        """Results."""
        from rich.console import Console

        return Console(highlight=False, soft_wrap=False)

    @cached_property
    def err(self) -> "Console":
        """Notes, progress and errors."""
        from rich.console import Console

        class NoteConsole(Console):
            """Goes on when nobody reads: the verdict in the exit code stays what it is."""

            def on_broken_pipe(self) -> None:
                self.quiet = True
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())

        return NoteConsole(stderr=True, highlight=False)

    def print(self, renderable: "RenderableType") -> None:
        """Print a result, without the blanks by which tables fill their lines, and no control character in it."""
        from rich.console import Console
        from rich.segment import Segment, Segments

        # Written by us and not by rich, which leaves the process when nobody reads.
        page = Console(
            file=io.StringIO(),
            width=self.out.width,
            force_terminal=self.out.is_terminal,
            color_system=self.out.color_system,  # type: ignore[arg-type]
            highlight=False,
        )
        options = page.options.copy()
        options.encoding = self.out.encoding
        # Not cut at the edge: a command goes on beyond it.
        for line in Segment.split_lines(page.render(renderable, options)):
            page.print(Segments([*_stripped(_harmless(line)), Segment.line()]), crop=False)
        self._write(page.file.getvalue())  # type: ignore[attr-defined]

    def text(self, text: str) -> None:
        """Print a result as it is: no wrapping, no markup; only on a screen without control characters."""
        said = text_of(text)
        self._write(escape_control(said, newlines=True) if sys.stdout.isatty() else said)

    def passing(self, text: str | Message) -> None:
        """Say what is known so far: in a line that the next takes the place of, where someone watches."""
        if not self.err.is_terminal:
            self.wrapped(text_of(text))
            return
        self.finish()
        self._clear()
        from roundoff.messages.lines import wrapped_lines

        line = wrapped_lines(escape_control(text_of(text)), max(_NARROWEST, self.err.width - 1))
        self.err.print(shown(line[0] if line else ""), markup=False, style="dim", end="", soft_wrap=True)
        self._passing = True

    def _clear(self) -> None:
        """Take the passing line away."""
        if self._passing:
            self._passing = False
            self.err.file.write("\r\x1b[2K")
            self.err.file.flush()

    def _write(self, text: str) -> None:
        """Write to stdout.

        Whoever has stopped reading (head, less) misses the rest; the verdict in the exit code stays what it is.
        """
        self._clear()
        try:
            sys.stdout.write(shown(text if text.endswith("\n") else text + "\n"))
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except OSError as error:
            reason = error.strerror or str(error)
            # What could not be written would be tried again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            fix = english("send it somewhere else, or write the result to a folder with -o")
            raise BadInput("The standard output cannot be written: {reason}.", fix=fix, reason=reason) from error

    def error(self, error: RoundoffError) -> None:
        """Say what went wrong, and what to do about it."""
        text = translate("terminal.error", what=error.what, fix=error.fix)
        # In a log each stays in its line, for whoever looks for it.
        say = self.wrapped if self.err.is_terminal else self.note
        for line in text.split("\n"):
            say(line)

    def written(self, paths: "Sequence[Path]", most: int | None = None) -> None:
        """Name files that were written: in a line where they fit in one, else each in its own.

        Args:
            paths: The files.
            most: Name at most so many of them.
        """
        from rich.cells import cell_len

        names = [str(path) for path in paths[:most]]
        more = len(paths) - len(names)
        if more:
            names[-1] = translate("terminal.written_more", files=names[-1], count=more)
        line = translate("terminal.written", files=", ".join(names))
        if cell_len(line) > self.err.width:
            line = f"\n{_INDENT}".join([translate("terminal.written", files="").rstrip(), *names])
        self.note(line)

    def remark(self, text: str | Message) -> None:
        """Say what the reader should know of a result."""
        self.note(translate("terminal.note", text=text_of(text)))

    def note(self, text: str) -> None:
        """Say something that is not a result."""
        self._clear()
        self.err.print(shown(escape_control(text_of(text), newlines=True)), markup=False, soft_wrap=True)

    def wrapped(self, text: str) -> None:
        """Say something that is not a result, in lines that fit the screen; names are not torn."""
        from roundoff.messages.lines import wrapped_lines

        clean, width = escape_control(text_of(text)), max(_NARROWEST, self.err.width)
        self.note("\n".join(wrapped_lines(clean, width, others=_INDENT)))

    @contextmanager
    def watched(self, output: "Path | None") -> Iterator[None]:
        """While it lasts, others can read how far a command is that writes to `output`; None for nobody."""
        if output is None:
            yield
            return
        from roundoff.core.progress import ProgressFile

        self._file = ProgressFile(output)
        try:
            yield
        finally:
            self._file.close()
            self._file = None

    def start(self, title: str, total: int) -> None:
        """Begin a job; a bar appears once it has taken two seconds."""
        self.finish()
        self._title, self._total, self._done, self._started = title, total, 0, time.monotonic()
        if self._file is not None:
            self._file.start(title, total)

    def advance(self, steps: int = 1) -> None:
        """Count finished steps; a job that was estimated too short is no more than done."""
        steps = min(steps, self._total - self._done)
        self._done += steps
        if self._file is not None:
            self._file.advance(steps)
        if self._bar is None:
            if not self.err.is_terminal or time.monotonic() - self._started < _QUIET_S:
                return
            self._show_bar()
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self._done)

    def finish(self) -> None:
        """End the job and take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _show_bar(self) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._clear()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=self.err, transient=True)
        self._bar.add_task(self._title, total=self._total)
        self._bar.start()


def _harmless(line: "list[Segment]") -> "list[Segment]":
    """A line whose text cannot steer the terminal; what rich itself puts there to steer it stays."""
    return [each if each.control else each._replace(text=escape_control(each.text)) for each in line]


def _stripped(line: "list[Segment]") -> "list[Segment]":
    """A line without trailing blanks, whatever their styles."""
    kept = list(line)
    while kept and not kept[-1].text.strip():
        kept.pop()
    return [*kept[:-1], kept[-1]._replace(text=kept[-1].text.rstrip())] if kept else []


# The process of a command: Ctrl-C, termination, and warnings of the library as notes.

# How soon it is tried again, in seconds.
_AGAIN_S = 0.02


def interrupt_on_terminate() -> None:
    """End as tidily when told to terminate as on Ctrl-C.

    Libraries of machine code that are interrupted while they are loaded crash, or say that they failed. Only from
    the main thread. Who started the process so that Ctrl-C does nothing is obeyed.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(_: int, frame: types.FrameType | None) -> None:
    if hasattr(signal, "setitimer") and _must_not_be_torn(frame):
        signal.signal(signal.SIGALRM, _interrupt)
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        return
    _stop()


def _stop() -> NoReturn:
    raise KeyboardInterrupt


def _must_not_be_torn(frame: types.FrameType | None) -> bool:
    """Whether a frame, or one that called it, is about to load a library, or names the fields of a class.

    What interrupts the latter is taken for a fault of the class.
    """
    while frame is not None:
        if frame.f_code.co_name == "__set_name__":
            return True
        if frame.f_code.co_name in ("create_module", "exec_module") and isinstance(
            frame.f_locals.get("self"), ExtensionFileLoader
        ):
            return True
        frame = frame.f_back
    return False


class _Notes(logging.Handler):
    """Prints each message once."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__(logging.WARNING)
        self._terminal = terminal
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text not in self._said:
            self._said.add(text)
            self._terminal.note(text)


@contextlib.contextmanager
def warnings_as_notes(terminal: Terminal) -> Iterator[None]:
    """Print warnings of the library as notes."""
    logger, handler = logging.getLogger("roundoff"), _Notes(terminal)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
