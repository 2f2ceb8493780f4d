"""Graphs larger than GPU memory: which lists pass through the GPU, and when."""
