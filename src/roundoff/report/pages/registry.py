"""All pages, in the order of a report."""

from collections.abc import Callable

from roundoff.core.document import RunDocument
from roundoff.report.pages.blocks import Page
from roundoff.report.pages.layers import layers_page
from roundoff.report.pages.network import network_page

__all__ = ["PAGES", "all_pages"]

PAGES: tuple[Callable[[RunDocument], Page | None], ...] = (layers_page, network_page)


def all_pages(document: RunDocument) -> tuple[Page, ...]:
    """The pages that a document has something for."""
    return tuple(page for make in PAGES if (page := make(document)) is not None)
