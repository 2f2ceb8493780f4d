"""Sampling and relabelling on the GPU: one launch for any number of mini-batches."""
