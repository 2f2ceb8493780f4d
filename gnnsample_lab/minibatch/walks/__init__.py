"""Mini-batches whose edges are chosen by the visits of random walks (PinSAGE)."""
