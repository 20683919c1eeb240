"""Reports as one HTML file that needs nothing else."""

from roundoff.report.html.render import html_report

__all__ = ["html_report"]
