"""Sums over the in-edges of a block: the ladder of kernels, their bound, their gradients."""
