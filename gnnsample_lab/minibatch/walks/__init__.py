"""Mini-batches whose edges random walks have voted for."""
