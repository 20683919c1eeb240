"""Text that is safe in a spreadsheet's cell."""

__all__ = ["safe_cell"]

# A cell that starts like this would be run as a formula; names come from strangers' files.
_FORMULA_START = ("=", "+", "-", "@", "\t", "\r")


def safe_cell(text: str) -> str:
    """The text, with the apostrophe before it that keeps spreadsheets from computing it."""
    return f"'{text}" if text.startswith(_FORMULA_START) else text
