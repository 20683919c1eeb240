"""Vendors' own tools as judges: they quantize and run models of ours, and we read, predict and diagnose that."""
