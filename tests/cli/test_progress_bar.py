"""Progress in a terminal has a label and ends at all of its steps."""

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
