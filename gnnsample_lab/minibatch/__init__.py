"""From picks to mini-batches: local ids, blocks, and ``NeighborSampler``, which does sampling and relabelling."""
