"""Launch shapes of the register-tile kernel, as far as they can be checked without a GPU."""

from __future__ import annotations

import re

import numpy as np
import pytest

from gnnsample_lab.compute.aggregation.csr import Csr
from gnnsample_lab.compute.aggregation.register_tile import Tile, choose, of_few
from gnnsample_lab.device.kernels import PACKAGE_ROOT


@pytest.mark.parametrize("features", [1, 2, 3, 16, 63, 64, 100, 128, 130, 256, 602, 1024, 4096])
@pytest.mark.parametrize("edges", [1_000, 5_000_000])
def test_every_width_has_a_shape(features, edges):
    csr = Csr(None, None, 300_000, 1_000_000, edges)
    for vec in (v for v in (1, 2, 4) if features % v == 0):
        tile = choose(csr, features, vec)
        assert tile.vec == vec and tile.width == tile.vec * tile.lanes * tile.chunks
        assert 1 <= tile.lanes <= 32 and tile.threads % tile.lanes == 0 and 1 <= tile.depth <= 16
        assert 96 < tile.threads <= 256
        # No tile is more than twice as wide as the row: that would leave whole chunks idle.
        assert tile.width < 2 * features + vec


@pytest.mark.parametrize(
    ("features", "rows", "few"),
    [
        (64, 1024, True),
        (64, 2111, True),
        (64, 2112, False),
        (100, 1319, True),
        (100, 1320, False),
        (602, 264, False),
    ],
)
def test_few_rows_have_a_shape_of_their_own(features, rows, few):
    tile = choose(Csr(None, None, rows, 1_000_000, 10 * rows), features, 4 if features % 4 == 0 else 2)
    found = of_few(tile, rows, features, 132)
    assert found == (tile.with_(unroll=16, threads=found.threads, min_blocks=4) if few else tile)
    assert found.threads % found.lanes == 0 and (found.threads <= 64) == few


def test_every_macro_is_one_of_the_kernel():
    text = "".join(
        (PACKAGE_ROOT / "compute" / "aggregation" / name).read_text(encoding="utf-8")
        for name in ("register_tile.cu", "row_end.cuh", "vectors.cuh")
    )
    for name in (*Tile().macros(), "SCALAR", "COEF", "DIRECT"):
        assert re.search(rf"^#ifndef {name}$", text, re.MULTILINE), name


def test_a_changed_shape_is_another_one():
    tile = Tile()
    assert tile.with_(lanes=8).lanes == 8 and tile.lanes == 16
    assert tile == Tile() and hash(tile) == hash(Tile()) and tile != tile.with_(unroll=8)
    assert np.prod([tile.vec, tile.lanes, tile.chunks]) == tile.width


@pytest.mark.parametrize(
    ("features", "lanes"), [(12, 4), (40, 10), (52, 16), (64, 16), (80, 20), (100, 25), (120, 30), (128, 16)]
)
def test_a_group_has_no_more_idle_lanes_than_pay(features, lanes):
    tile = choose(Csr(None, None, 1_000, 1_000_000, 10_000), features, 4)
    assert tile.lanes == lanes and tile.threads == 128 // lanes * lanes
