"""Settings in the words of other tools, beside another result.

Loaded for every --help, so it imports the standard library alone until there are some.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roundoff.cli.terminal import Terminal
    from roundoff.vendors.dialects.settings import ToolSettings

__all__ = ["DIALECT_HELP", "print_settings"]

DIALECT_HELP = (
    "write settings for other tools: roundoff, onnxruntime, pulsar2, horizon, amct, rknn, tpu-mlir, nncf, aimet, "
    "or all"
)

# So many lines beside another result; all of them are in the file.
_MOST_LOST = 6


def print_settings(terminal: "Terminal", settings: "ToolSettings", folder: Path) -> None:
    """Tell of settings beside another result: where they are, for which graph, and what they could not say."""
    from rich.text import Text

    from roundoff.messages.sanitize import for_people
    from roundoff.pages.terminal import verdict_page
    from roundoff.vendors.dialects.settings import SETTINGS_NAME

    lost = list(settings.lost())
    lines = [("", each) for each in lost[:_MOST_LOST]]
    if len(lost) > _MOST_LOST:
        lines.append(("", f"and {len(lost) - _MOST_LOST} more in {folder / SETTINGS_NAME}"))
    if settings.graph:
        lines.insert(0, ("model", f"{settings.graph}: give the tools this one, settings belong to it"))
    headline = Text("SETTINGS", style="bold green")
    headline.append(f": {settings.count}; how to use them is in {folder / SETTINGS_NAME}", style="default")
    terminal.text("")
    terminal.print(verdict_page(headline, for_people(tuple(lines))))
