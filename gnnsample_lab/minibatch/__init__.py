"""From picks to mini-batches: local ids, blocks, and the samplers, which sample and relabel."""
