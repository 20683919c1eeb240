"""Pictures of finished results, as PNG or SVG; they compute nothing, and need the extra ``plots``."""
