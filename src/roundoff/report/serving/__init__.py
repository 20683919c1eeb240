"""Runs of a folder, browsed on this machine: found, listed, rendered on request."""

from roundoff.report.serving.server import Served, make_server

__all__ = ["Served", "make_server"]
