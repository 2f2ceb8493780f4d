"""The NextDoor abstraction (Jangda et al., EuroSys'21): sampling applications in Python, and what runs them.

A :class:`~.language.app.SamplingApp` defines how one vertex is chosen. The CPU walker and the GPU's kernels call that
function and return the same samples.
"""
