"""Wrong kernels: known ways to compute something else, and which of them gives what a device wrote.

`kernel` holds what computes one tensor, as a small model that can be changed; `layers`, `elementwise`, `spatial`
and `results` are tables of ways to get it wrong; `fit` tries them on a dump.
"""
