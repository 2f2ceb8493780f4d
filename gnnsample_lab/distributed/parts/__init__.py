"""A graph in parts: which rank owns which vertex, what it keeps of the graph, and what it copies from others."""
