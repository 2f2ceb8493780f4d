"""Twins of graphs, version 3: structure measured or published, the same graph generated on both devices."""
