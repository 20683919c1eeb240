"""What a run read and where it ran; see `roundoff.core.provenance`."""

from roundoff.core.provenance import data_paths, environment, input_file

__all__ = ["data_paths", "environment", "input_file"]
