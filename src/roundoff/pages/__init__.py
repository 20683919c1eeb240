"""What can be shown: blocks of a page, and the renderers that know blocks alone.

The page of a question needs one import, ``from roundoff import pages``, for all that pages are made of.
"""

from roundoff.pages import blocks
from roundoff.pages.blocks import *  # noqa: F403 - all that a page is made of

__all__ = blocks.__all__
