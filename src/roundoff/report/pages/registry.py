"""All pages, in the order of a report."""

from collections.abc import Callable
from dataclasses import replace

from roundoff.core.document import RunDocument
from roundoff.report.pages.about import about_page
from roundoff.report.pages.accumulation import accumulation_page
from roundoff.report.pages.audit import audit_page
from roundoff.report.pages.blocks import Chart, Page, Table
from roundoff.report.pages.calibration import calibration_page
from roundoff.report.pages.channels import channels_page
from roundoff.report.pages.comparison import comparison_page
from roundoff.report.pages.diagnosis import diagnosis_page
from roundoff.report.pages.distribution import distribution_page
from roundoff.report.pages.glossary import glossary_page
from roundoff.report.pages.io_check import io_check_page
from roundoff.report.pages.layers import layers_page
from roundoff.report.pages.network import network_page
from roundoff.report.pages.outliers import outliers_page
from roundoff.report.pages.overview import overview_page
from roundoff.report.pages.partial import partial_page
from roundoff.report.pages.run_diff import diff_page
from roundoff.report.pages.samples import samples_page
from roundoff.report.pages.sensitivity import sensitivity_page
from roundoff.report.pages.transform import transform_page
from roundoff.report.pages.tuning import tuning_page

__all__ = ["PAGES", "all_pages"]

PAGES: tuple[Callable[[RunDocument], Page | None], ...] = (
    diff_page,
    diagnosis_page,
    io_check_page,
    calibration_page,
    comparison_page,
    layers_page,
    sensitivity_page,
    accumulation_page,
    partial_page,
    tuning_page,
    transform_page,
    audit_page,
    distribution_page,
    channels_page,
    outliers_page,
    samples_page,
    network_page,
)


def all_pages(document: RunDocument) -> tuple[Page, ...]:
    """The pages that a document has something for, framed by an overview, a glossary and what the run was."""
    found = tuple(_without_empty(page) for make in PAGES if (page := make(document)) is not None)
    framed = (overview_page(document, found), *found, glossary_page(found), about_page(document))
    return tuple(page for page in framed if page is not None)


def _without_empty(page: Page) -> Page:
    """A page without tables that have no row, and the charts of these."""
    empty = {block.id for block in page.blocks if isinstance(block, Table) and not block.rows}
    blocks = tuple(
        block
        for block in page.blocks
        if (block.id if isinstance(block, Table) else block.table if isinstance(block, Chart) else "") not in empty
    )
    return replace(page, blocks=blocks, sections=tuple(_without_empty(each) for each in page.sections))
