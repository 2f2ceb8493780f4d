"""Features on their way to the GPU: caches, and what consecutive mini-batches share."""
