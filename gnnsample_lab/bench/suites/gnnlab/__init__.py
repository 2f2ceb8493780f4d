"""GNNLab's tables and figures on caching."""
