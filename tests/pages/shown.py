"""What a page says in a terminal."""

import io

from rich.cells import cell_len
from rich.console import Console

from roundoff.messages.catalogue import Language, use_language
from roundoff.pages.blocks import Page
from roundoff.pages.terminal import terminal_page


def shown(page: Page | None, width: int = 80, *, language: Language = "en") -> str:
    """A page as a terminal of some width shows it; nothing reaches beyond its edge."""
    assert page is not None
    console = Console(width=width, file=io.StringIO(), color_system=None)
    with use_language(language):
        console.print(terminal_page(page))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(cell_len(line) <= width for line in text.splitlines())
    return "\n".join(line.rstrip() for line in text.splitlines())
