"""Graphs whose edges are drawn one by one, alike on both devices: R-MAT, and the twins of version 2."""
