"""Fuzzing with structure: `python -m benchmarks fuzz`."""
