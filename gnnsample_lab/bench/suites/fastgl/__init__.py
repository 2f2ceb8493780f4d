"""FastGL's tables and figures."""
