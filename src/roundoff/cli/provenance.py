"""What a run read and where it ran, for its document: the names that commands use."""

from roundoff.core.provenance import data_paths, environment, input_file

__all__ = ["data_paths", "environment", "input_file"]
