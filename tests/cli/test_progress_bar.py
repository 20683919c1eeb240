"""Progress in a terminal has a label and ends at all of its steps."""

import io

import pytest
from rich.console import Console

from roundoff.cli.terminal import Terminal


def test_a_job_of_more_steps_than_were_announced_does_not_pass_its_end() -> None:
    terminal = Terminal()
    terminal.start("layers", 3)
    terminal._show_bar()
    try:
        terminal.advance(2)
        terminal.advance(5)
        terminal.advance()
        bar = terminal._bar
        assert bar is not None
        [task] = bar.tasks
        assert (task.description, task.completed, task.total) == ("layers", 3, 3)
    finally:
        terminal.finish()


def test_what_is_known_so_far_is_one_line_that_the_verdict_takes_the_place_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    terminal, screen = Terminal(), io.StringIO()
    terminal.err = Console(file=screen, force_terminal=True, width=40, color_system=None)
    for text in ("outputs: SQNR 4.3 dB", "a longer sentence that does not fit into a line of forty columns"):
        terminal.passing(text)
    terminal.text("CULPRITS")
    said = screen.getvalue()
    assert "\n" not in said
    assert said.count("\r\x1b[2K") == 2
    assert said.endswith("\r\x1b[2K")
    assert capsys.readouterr().out == "CULPRITS\n"
    # In a log each is a line, whole.
    log = Terminal()
    log.err = Console(file=(kept := io.StringIO()), width=40)
    log.passing("outputs: SQNR 4.3 dB")
    assert kept.getvalue() == "outputs: SQNR 4.3 dB\n"
