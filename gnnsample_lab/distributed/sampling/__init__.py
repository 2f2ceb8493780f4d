"""Sampling from a graph in parts: a ladder of methods that draw one and the same sample."""
