"""Pairs of tensors summed up once, metrics as functions of the sums, thresholds and statistics."""
