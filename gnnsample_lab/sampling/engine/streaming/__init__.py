"""Graphs larger than GPU memory: which parts of the graph are copied to the GPU, and when."""
