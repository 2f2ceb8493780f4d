"""PGSampler's tables and figures."""
