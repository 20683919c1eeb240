"""Pages of a report: each a function of the run document that gives a page, or None without anything to show."""

from roundoff.report.pages.registry import all_pages

__all__ = ["all_pages"]
