"""The kernels of the bitmap ID map, compiled for the host, against the plain definition of an ID map."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from gnnsample_lab.minibatch.id_map import levels
from gnnsample_lab.minibatch.id_map.ladder import Relabelled
from gnnsample_lab.sampling.neighbors.sizes import power_of_two
from tests.host_gpu.sources import HostKernels

from .test_id_maps import CASES, expected, random_hops

_KERNELS = ("mark", "unmark", "count", "place", "look_up")


@pytest.fixture(scope="module", params=["int", "long"])
def kernels(request, tmp_path_factory) -> tuple[HostKernels, Any]:
    folder = tmp_path_factory.mktemp("levels")
    compiled = HostKernels("minibatch/id_map/levels.cu", "Levels", _KERNELS, {"ID_T": request.param}, folder)
    return compiled, np.dtype(np.int32 if request.param == "int" else np.int64)


def run(kernels: tuple[HostKernels, Any], num_nodes: int, seeds: Any, hops: Any) -> Relabelled:
    """Map a mini-batch as ``LevelMap`` does; nothing beyond the results may be written."""
    compiled, ids = kernels
    seeds, hops = np.asarray(seeds, ids), [np.asarray(hop, ids) for hop in hops]
    n, counts, num_hops = seeds.size, [hop.size for hop in hops], len(hops)
    room = min(n + sum(counts), num_nodes)
    nodes, report = np.full(room + 64, -5, ids), np.zeros(32, np.int64)
    local = [np.full(m + 1, -7, np.int32) for m in counts]
    tiles = np.cumsum([0] + [-(-m // levels._TILE) for m in counts]).tolist()
    sectors, slots = -(-num_nodes // levels._SECTOR_BITS), power_of_two(2 * n, 64)
    blocks = -(-sectors // levels._SECTOR_TILE)
    marks = np.zeros(8 * sectors * num_hops + 4, np.uint32)
    seeds_at, of_tiles = np.zeros(slots, np.uint64), np.full(blocks * num_hops, 2**32 - 1, np.uint32)
    begin = -(-marks.ctypes.data // 16) * 16
    argument = np.zeros(levels._BYTES, np.uint8)
    for at, form, values in (
        (levels._PICKS_AT, "Q", [hop.ctypes.data for hop in hops]),
        (levels._OUT_AT, "Q", [out.ctypes.data for out in local]),
        (levels._COUNT_AT, "Q", counts), (levels._TILES_AT, "I", tiles),
    ):  # fmt: skip
        struct.pack_into(f"{len(values)}{form}", argument, at, *values)
    levels._ARGUMENT.pack_into(
        argument, levels._REST_AT, seeds.ctypes.data, nodes.ctypes.data, begin, of_tiles.ctypes.data,
        seeds_at.ctypes.data, report.ctypes.data, 9, slots - 1, n, sectors, blocks, num_hops,
    )  # fmt: skip
    for name, grid in zip(_KERNELS, (tiles[-1], -(-n // 256), blocks, blocks, tiles[-1]), strict=True):
        compiled.launch(name, argument, grid, 256)
    sizes = report[1 : 2 + num_hops].tolist()
    assert report[0] == 9
    assert (nodes[sizes[-1] :] == -5)[room - sizes[-1] :].all() and all(out[-1] == -7 for out in local)
    return Relabelled(nodes[: sizes[-1]], tuple(sizes), [out[:-1] for out in local])


@pytest.mark.parametrize("case", [name for name in CASES if name not in ("uneven", "64-bit")])
def test_bitmaps_make_the_id_map(kernels, case):
    num_nodes, seeds, hops = CASES[case]
    if not any(len(hop) for hop in hops):
        pytest.skip("nothing is launched without picks")
    assert run(kernels, num_nodes, seeds, hops) == expected(seeds, hops)


def test_several_tiles_of_sectors_share_the_numbers(kernels):
    num_nodes = 500_000
    seeds, hops = random_hops(5, 20_000, 30, [700, 1500])
    hops = [hop * (num_nodes // 20_000) for hop in hops]
    assert run(kernels, num_nodes, seeds, hops) == expected(seeds, hops)
