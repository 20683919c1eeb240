"""The paths by which scripts of earlier versions import what a build is made of."""

import sys

from roundoff.vendors.pulsar2 import build, tables

__all__ = ["build", "tables"]

sys.modules.update({f"{__name__}.build": build, f"{__name__}.log": tables})
