"""Synthetic graphs: the twins of the papers' graphs, generated alike on both devices."""
