"""Sample, extract, train: the loop on one device, its records, and how its stages overlap."""

from __future__ import annotations

from gnnsample_lab.lazy import exports

__getattr__, __dir__ = exports(__name__, {}, modules=["schedule"])  # lab.schedule
