"""Group pairs of sample and transit by transit, or by range of vertices."""
