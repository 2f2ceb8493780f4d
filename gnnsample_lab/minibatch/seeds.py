"""Check and convert the seeds that users give: arrays of any library, with duplicates."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.checks import ids_below, integers, is_cuda_array, no_mask_of_bytes
from gnnsample_lab.device import streams
from gnnsample_lab.device.arrays import to_host


class Unchanged(list[Any]):
    """Seeds of mini-batches whose memory nobody writes to: what is started may read them later without a copy."""


def seed_array(seeds: Any, num_nodes: int, most: int | None = None) -> Any:
    """Seeds as a one-dimensional integer array: CuPy if they lie on the GPU, else NumPy.

    This function checks that host seeds are in ``[0, num_nodes)``. The sampling kernel checks device seeds, so that no
    extra synchronisation is needed.

    Args:
        seeds: vertex ids of any array library, or a list.
        num_nodes: vertices of the graph.
        most: highest number of seeds, None for any.

    Raises:
        TypeError: not integers, or a mask of bytes on the host.
        ValueError: empty, more than ``most``, not one-dimensional, or out of range.
    """
    streams.order(seeds)
    array = integers("seeds", seeds)
    if array.size == 0:
        raise ValueError("seeds must name at least one vertex (got none)")
    if most is not None and array.size > most:
        raise ValueError(
            f"seeds of one mini-batch may be at most {most} (got {array.size}): sample several mini-batches"
        )
    if isinstance(array, np.ndarray):
        no_mask_of_bytes("seeds", array, num_nodes)
        ids_below("seeds", array, num_nodes)
    return array


def on_host(seeds: Any) -> Any:
    """Seeds that lie on a GPU, copied to the host; everything else as it is, since nothing has been checked yet."""
    if not is_cuda_array(seeds):
        return seeds
    return seeds.cpu() if hasattr(seeds, "cpu") else to_host(seeds)
