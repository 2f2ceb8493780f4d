"""The NextDoor abstraction (Jangda et al., EuroSys'21): sampling applications in Python, and what runs them.

A :class:`~.app.SamplingApp` says how one vertex is chosen; the CPU walker and the GPU's kernels call that function, and
return the same samples.
"""
