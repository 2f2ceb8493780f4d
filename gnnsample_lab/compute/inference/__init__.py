"""Layer-wise inference: all vertices of a graph, one layer after another, with tables that may exceed the device."""
