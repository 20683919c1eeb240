"""What can be shown: blocks of a page, and the renderers that know blocks alone."""
