"""Reports as one HTML file that needs nothing else."""

from roundoff.pages.html.render import html_report

__all__ = ["html_report"]
