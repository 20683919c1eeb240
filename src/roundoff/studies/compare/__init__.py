"""Which tensors of two sets differ, how, and where it started."""
