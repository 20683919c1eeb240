"""Targets: what chips can do, each a TOML file in this folder or one of the user's own."""

from roundoff.quantize.targets.files import load_target, target_names

__all__ = ["load_target", "target_names"]
