"""PinSAGE's neighbourhoods: random walks vote for a vertex's neighbours."""
