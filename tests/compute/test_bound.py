"""The cost model against counts made edge by edge, and the bound against its formula."""

from __future__ import annotations

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.compute.aggregation.bound import RTX_3090, MemorySpeeds, aggregation_bound_us, roofline
from tests.compute.conftest import empty_block


def counted(block, d: int) -> tuple[int, int, int]:
    """Bytes of partial sums, features and weights that the naive kernel reads, by walking through it."""
    sums = features = weights = 0
    for row in range(block.num_dst):
        for position in range(int(block.indptr[row + 1] - block.indptr[row])):
            for _ in range(d):
                features += 4
                weights += 4
                sums += 4 * (position > 0)
    return sums, features, weights


def test_the_papers_equations(block):
    d = 5
    sums, features, weights = counted(block, d)
    naive = lab.aggregation_cost(block, d, "naive")
    aware = lab.aggregation_cost(block, d, "memory-aware")
    assert naive.global_bytes == sums + features + weights and naive.shared_bytes == 0
    # Eq. 4: sums and all but one read of each weight move to shared memory.
    assert aware.shared_bytes == sums + weights - 4 * block.num_edges
    assert aware.global_bytes == features + 4 * block.num_edges
    assert naive.global_bytes == aware.global_bytes + aware.shared_bytes
    assert naive.flops == aware.flops == 2 * d * block.num_edges
    speeds = MemorySpeeds(1.0, 1.0, 10.0, 1.0, "made up")
    assert aware.time_us(speeds) == pytest.approx(
        (aware.global_bytes + aware.written_bytes + aware.shared_bytes / 10) / 1e3
    )
    assert aware.time_us(RTX_3090) < naive.time_us(RTX_3090)


def test_ours_asks_least(block):
    costs = {name: lab.aggregation_cost(block, 64, name) for name in lab.aggregation_kernels()}
    total = {name: c.global_bytes + c.shared_bytes + c.written_bytes for name, c in costs.items()}
    assert min(total, key=total.get) in ("register-tile", "library", "auto")
    assert total["naive"] == max(total.values())
    assert total["grouped"] > total["register-tile"]
    unweighted = lab.aggregation_cost(block, 64, "register-tile", weighted=False)
    assert costs["register-tile"].global_bytes - unweighted.global_bytes == 4 * block.num_edges


def test_no_edges():
    cost = lab.aggregation_cost(empty_block(), 8, "naive")
    assert (cost.global_bytes, cost.written_bytes, cost.flops) == (0, 96, 0)


def test_bad_arguments(block):
    with pytest.raises(ValueError, match="kernel must be one of"):
        lab.aggregation_cost(block, 8, "quick")
    with pytest.raises(ValueError, match="num_features must be between 1 and"):
        lab.aggregation_cost(block, 0)


def test_bound():
    # DRAM: (10 + 4) rows of 8 floats, 20 edges of 8 bytes, 5 bounds of 8 bytes; L2: 20 rows.
    assert aggregation_bound_us(10, 4, 20, 8, 1.0, 1e9) == pytest.approx((448 + 160 + 40) / 1e3)
    assert aggregation_bound_us(10, 4, 20, 8, 1.0, 1e9, weight_bytes=0) == pytest.approx(
        (448 + 80 + 40) / 1e3
    )
    assert aggregation_bound_us(10, 4, 20, 8, 1e9, 1.0) == pytest.approx(640 / 1e3)
    assert aggregation_bound_us(10, 4, 20, 8, 1e9, 1.0, element_bytes=8) == pytest.approx(1280 / 1e3)


def test_roofline(block):
    data = roofline(RTX_3090, {"naive": 20.0, "memory-aware": 10.0}, block, 16, "modelled as a test")
    assert data.origin == RTX_3090.origin and {p.origin for p in data.points} == {"modelled as a test"}
    assert data.attainable_gflops.max() == RTX_3090.fp32_gflops
    slope = data.attainable_gflops[0] / data.intensity[0]
    assert slope == pytest.approx(RTX_3090.dram_gbps)
    naive, aware = data.points
    assert aware.gflops == pytest.approx(2 * naive.gflops)
    assert naive.flops_per_byte < aware.flops_per_byte < 0.5
    assert np.all(np.diff(data.attainable_gflops) >= 0)


def test_measuring_needs_a_gpu():
    from gnnsample_lab.compute.aggregation.bandwidth import measured_bandwidths
    from gnnsample_lab.device.runtime import cuda_available

    if cuda_available():
        pytest.skip("there is a GPU")
    with pytest.raises(RuntimeError, match="needs a GPU"):
        measured_bandwidths()
