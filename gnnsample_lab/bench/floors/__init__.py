"""Floors: how fast any kernel could do the memory accesses of a given sample or walk."""
