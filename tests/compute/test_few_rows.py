"""The kernel for few rows: when it is taken, and that its sums have the bits of the register-tile kernel."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from gnnsample_lab.compute.aggregation import few_rows, register_tile
from gnnsample_lab.compute.aggregation.csr import Csr, csr_of
from gnnsample_lab.compute.aggregation.few_rows import Shape, shape_for
from gnnsample_lab.device import runtime
from gnnsample_lab.device.kernels import PACKAGE_ROOT
from tests.compute.conftest import dense, random_block, to_gpu

SMS = 132


@pytest.mark.parametrize(
    ("features", "widest", "vec", "lanes", "tiles"),
    [
        (1, 1, 1, 8, 1), (8, 4, 4, 8, 1), (32, 4, 4, 8, 1), (36, 4, 2, 32, 1), (64, 4, 2, 32, 1), (68, 4, 4, 32, 1),
        (100, 4, 4, 32, 1), (128, 4, 4, 32, 1), (130, 2, 2, 32, 3), (256, 4, 4, 32, 2), (602, 2, 2, 32, 10),
        (33, 1, 1, 32, 2), (16, 2, 2, 8, 1), (20, 2, 1, 32, 1), (64, 2, 2, 32, 1),
    ],
)  # fmt: skip
def test_a_row_is_laid_over_a_warp(features, widest, vec, lanes, tiles):
    assert shape_for(1024 // tiles, features, widest, SMS) == Shape(vec, lanes, tiles)


@pytest.mark.parametrize(
    ("features", "most"), [(32, 2112), (100, 2112), (128, 2112), (256, 1056), (1024, 264)]
)
def test_rows_are_few_while_a_multiprocessor_holds_all_their_warps(features, most):
    assert shape_for(most, features, 4, SMS) and shape_for(most + 1, features, 4, SMS) is None


def test_the_kernel_holds_as_many_warps_as_the_rule_says():
    text = (PACKAGE_ROOT / "compute" / "aggregation" / "few_rows.cu").read_text(encoding="utf-8")
    number = {
        name: int(n) for name, n in re.findall(r"^#define (WARPS|MIN_BLOCKS) (\d+)", text, re.MULTILINE)
    }
    assert number["WARPS"] == few_rows.BLOCK_WARPS
    assert number["WARPS"] * number["MIN_BLOCKS"] == few_rows.ROWS_PER_SM


@pytest.fixture
def taken(monkeypatch):
    """The shapes in which the kernel for few rows is asked for."""
    shapes, kernel = [], few_rows.kernel
    monkeypatch.setattr(few_rows, "kernel", lambda shape, *more: shapes.append(shape) or kernel(shape, *more))
    register_tile._planned.cache_clear()
    yield shapes
    register_tile._planned.cache_clear()


def both(csr, x, coef=None, mean=False, stride=0, fold=None):
    """What a launch without a shape writes, and the register-tile kernel in the shape that it has for as many rows."""
    import cupy

    features, dtype = x.shape[1], x.dtype
    widest = register_tile.vector_width(features, stride or features, x)
    tile = register_tile.of_few(
        register_tile.choose(csr, features, widest), csr.num_rows, features, runtime.num_sms()
    )
    sums = []
    for shape in (None, tile):
        memory = cupy.full((csr.num_rows, stride or features), np.nan, dtype)
        register_tile.launch(csr, x, memory[:, :features], coef, mean, shape, fold=fold)
        assert np.isnan(memory.get()[:, features:]).all()
        sums.append(memory.get()[:, :features])
    return sums


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("hub", [None, 64, 65, 700])
def test_sums_have_the_bits_of_the_register_tile_kernel(taken, hub, dtype):
    """Rows of up to 20 edges, so of more than one round, every seventh empty; ``hub``: the longest row of a group,
    and rows that the block shares."""
    import cupy

    rng = np.random.default_rng(3)
    block = random_block(4, longest=20, hub=hub)
    csr, coef = csr_of(to_gpu(block)), rng.uniform(-1, 1, block.num_edges).astype(dtype)
    widths = (1, 32, 33, 64, 100, 256)
    for features, mean, weighted in itertools.product(widths, (False, True), (False, True)):
        x = rng.uniform(-1, 1, (block.num_src, features)).astype(dtype)
        found, other = both(csr, cupy.asarray(x), cupy.asarray(coef) if weighted else None, mean)
        product = dense(block, coef if weighted else None, "mean" if mean else "sum")
        error, magnitude = np.abs(found - product @ x), np.abs(product) @ np.abs(x)
        assert (error <= 20 * np.finfo(dtype).eps * magnitude).all(), (features, mean, weighted)
        assert np.array_equal(found.view(np.uint8), other.view(np.uint8)), (features, mean, weighted)
        assert not found[::7].any()
    assert len(taken) == 4 * len(widths) and {s.lanes for s in taken} == {8, 32}


@pytest.mark.gpu
def test_long_rows_beside_each_other_and_signs_of_zeros(taken):
    """Rows of 64 edges belong to a warp, longer ones to the block. A product too small for its type is -0, and stays
    that if nothing is added."""
    import cupy

    lengths = np.array([5, 64, 65, 0, 200, 130, 1, 64, 1])
    indptr, rng = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), np.random.default_rng(2)
    indices, edges = rng.integers(0, 90, indptr[-1]).astype(np.int32), int(indptr[-1])
    csr = Csr(cupy.asarray(indptr), cupy.asarray(indices), len(lengths), 90, edges)
    coef = rng.uniform(-1, 1, edges).astype(np.float32)
    coef[-1] = 1e-30
    x = rng.uniform(-1, 1, (90, 32)).astype(np.float32)
    x[indices[-1]] = -1e-30
    found, other = both(csr, cupy.asarray(x), cupy.asarray(coef))
    assert np.array_equal(found.view(np.uint8), other.view(np.uint8)) and taken
    assert np.signbit(found[-1]).all() and not found[-1].any()
    assert np.allclose(found, [coef[a:b] @ x[indices[a:b]] for a, b in itertools.pairwise(indptr)], atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("num_dst", [1, 2, 3, 5, 1024, 4096])
def test_any_number_of_rows(taken, num_dst):
    import cupy

    block = random_block(6, num_dst=num_dst, num_src=max(90, num_dst), longest=6)
    csr, x = csr_of(to_gpu(block)), np.random.default_rng(0).random((block.num_src, 36), np.float32)
    found, other = both(csr, cupy.asarray(x), None, True)
    lengths = np.diff(block.indptr)
    rows = np.repeat(np.arange(num_dst), lengths)
    expected = np.zeros((num_dst, 36))
    np.add.at(expected, rows, x[block.indices].astype(np.float64))
    assert np.allclose(found, expected / np.maximum(lengths, 1)[:, None], rtol=1e-5)
    assert np.array_equal(found.view(np.uint8), other.view(np.uint8))
    assert len(taken) == (num_dst <= few_rows.ROWS_PER_SM * runtime.num_sms())


@pytest.mark.gpu
def test_more_rows_than_sources(taken):
    """As in a backward pass, for which register-tile has other shapes: long rows go round by as many sums as there."""
    import cupy

    block = random_block(4, num_dst=60, num_src=40, hub=200)
    csr = csr_of(to_gpu(block))
    for features in (12, 130, 512):
        x = np.random.default_rng(0).uniform(-1, 1, (40, features)).astype(np.float32)
        found, other = both(csr, cupy.asarray(x))
        assert np.allclose(found, dense(block) @ x, rtol=1e-5, atol=1e-5)
        assert np.array_equal(found.view(np.uint8), other.view(np.uint8)), features
    assert len(taken) == 3


@pytest.mark.gpu
def test_results_whose_rows_lie_apart(taken):
    """A stride that no wide store fits, and one that it does."""
    import cupy

    block = random_block(4, hub=200)
    x = cupy.asarray(np.random.default_rng(1).random((block.num_src, 64), np.float32))
    for stride in (65, 66, 72):
        found, other = both(csr_of(to_gpu(block)), x, None, True, stride)
        assert np.allclose(found, dense(block, None, "mean") @ x.get(), rtol=1e-5)
        assert np.array_equal(found, other)
    assert [shape.vec for shape in taken] == [1, 2, 2]


@pytest.mark.gpu
@pytest.mark.parametrize("hub", [None, 300])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_layers_fold_into_rows(taken, dtype, hub):
    import cupy

    from gnnsample_lab.compute.layers import Fold

    block = random_block(4, longest=20, hub=hub)
    csr, rng = csr_of(to_gpu(block)), np.random.default_rng(5)
    lengths = np.diff(block.indptr)[:, None]
    for features, loop, relu, more in itertools.product(
        (24, 33, 100), (False, True), (False, True), (None, 0.5)
    ):
        x = rng.uniform(-1, 1, (block.num_src, features)).astype(dtype)
        bias = rng.uniform(-1, 1, features).astype(dtype)
        eps = None if more is None else cupy.asarray(more, dtype)
        there = cupy.asarray(x)
        fold = Fold(there, loop=loop, bias=cupy.asarray(bias), relu=relu, more=eps)
        found, other = both(csr, there, None, False, fold=fold)
        expected = dense(block) @ x + (1 + (more or 0)) * x[: csr.num_rows]
        expected = (expected / (lengths + 1) if loop else expected) + bias
        expected = np.maximum(expected, 0) if relu else expected
        assert np.allclose(found, expected, rtol=1e-4, atol=1e-5), (features, loop, relu, more)
        assert np.array_equal(found.view(np.uint8), other.view(np.uint8)), (features, loop, relu, more)
    assert len(taken) == 6, "a plan serves launches that differ in pointers alone"


@pytest.mark.gpu
def test_coefficients_per_head_and_direct_edges_are_left_to_register_tile(taken):
    import cupy

    block = random_block(4)
    csr = csr_of(to_gpu(block))
    out = cupy.empty((csr.num_rows, 64), np.float32)
    register_tile.launch(
        csr,
        cupy.ones((csr.num_sources, 64), np.float32),
        out,
        cupy.ones((csr.num_edges, 4), np.float32),
        head_size=16,
    )
    register_tile.launch(csr, cupy.ones((csr.num_edges, 64), np.float32), out, direct=True)
    assert not taken
    assert np.array_equal(out.get(), np.repeat(np.diff(block.indptr)[:, None], 64, 1))
