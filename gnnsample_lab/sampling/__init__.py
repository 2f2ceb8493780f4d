"""From seeds to picks: for every hop, which vertices are expanded and which of their in-neighbours are drawn.

All strategies return the same picks, because a draw is a pure function of (seed, batch, hop, vertex, slot).
They differ in how the work is put on the machine, and that is what this package lets one compare.
"""
