"""A random walk written by the reader: node2vec beside its exact probabilities."""
