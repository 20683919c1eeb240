"""Where a run came from: the command to repeat it, what it read, versions and host."""

import shlex

from roundoff.core.document import RunDocument
from roundoff.report.figures import time_text
from roundoff.report.pages.blocks import Cell, Column, Commands, Page, Paragraph, Table
from roundoff.report.pages.parts import role_name
from roundoff.report.words import known, say

__all__ = ["about_page"]

_INPUTS = (
    Column("role", say("about.role"), "text"),
    Column("path", say("about.file"), "text"),
    Column("size_bytes", say("about.bytes"), "count"),
    Column("sha256", say("about.hash"), "text"),
)
_VERSIONS = (Column("what", say("about.what"), "text"), Column("value", say("about.value"), "text"))


def about_page(document: RunDocument) -> Page:
    """The page on the run itself; every document has one."""
    inputs = tuple((role_name(each.role), each.path, each.size_bytes, each.sha256) for each in document.inputs)
    host = document.environment
    versions: tuple[tuple[Cell, ...], ...] = (
        ("roundoff", host.roundoff),
        ("Python", host.python),
        *host.packages.items(),
        (say("about.host"), host.host),
        (say("about.arithmetic"), known(host.arithmetic)),
        (say("about.elapsed"), time_text(host.elapsed_s)),
    )
    blocks = (
        Paragraph(say("about.commands")),
        Commands((shlex.join(document.command),)),
        Table("inputs", say("about.inputs"), _INPUTS, inputs),
        Table("versions", say("about.versions"), _VERSIONS, versions, folded=True),
    )
    return Page("about", say("about.title"), blocks)
