"""Everything that touches hardware: device selection, kernel loading, the random generator, the GPU model.

This layer knows no graph: it deals in arrays, kernels and numbers.
"""
