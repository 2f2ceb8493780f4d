"""Pairs of sample and transit grouped by transit or by range of vertices."""
