"""Applications on the CPU: the walker, one step of one sample, and the context of a call of ``next``."""
