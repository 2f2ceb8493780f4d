"""Everything that touches hardware: device selection, kernel loading, streams, the random number generator.

This layer knows nothing about graphs: it handles arrays, kernels and numbers.
"""
