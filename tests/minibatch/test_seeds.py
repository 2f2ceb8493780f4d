"""Seeds as people give them, and what happens to duplicates."""

from __future__ import annotations

import numpy as np
import pytest

from gnnsample_lab import NeighborSampler
from gnnsample_lab.minibatch.seeds import seed_array

SEEDS = [9, 3, 9, 0, 119, 3, 9]


def torch_tensor(values, **how):
    torch = pytest.importorskip("torch")
    return torch.tensor(values, **how)


def read_only(values):
    array = np.array(values, dtype=np.int32)
    array.flags.writeable = False
    return array


KINDS = {
    "list": list,
    "tuple": tuple,
    "list of NumPy integers": lambda s: [np.int64(v) for v in s],
    "int32": lambda s: np.array(s, dtype=np.int32),
    "int64": np.array,
    "uint8": lambda s: np.array(s, dtype=np.uint8),
    "uint64": lambda s: np.array(s, dtype=np.uint64),
    "big-endian": lambda s: np.array(s, dtype=">i8"),
    "strided": lambda s: np.repeat(np.array(s, dtype=np.int32), 2)[::2],
    "read-only": read_only,
    "torch": torch_tensor,
    "torch int32": lambda s: torch_tensor(s, dtype=pytest.importorskip("torch").int32),
    "torch strided": lambda s: torch_tensor([[v, 0] for v in s])[:, 0],
}


@pytest.mark.parametrize("kind", KINDS)
def test_any_kind_of_seeds_gives_the_same_sample(graph, kind):
    sampler = NeighborSampler(graph, [4, 3], device="cpu")
    expected = sampler.sample(np.array(SEEDS), 3)
    found = sampler.sample(KINDS[kind](SEEDS), 3)
    assert found.canonical() == expected.canonical()
    assert found.seeds.tolist() == [9, 3, 0, 119]
    assert found.seed_inverse.tolist() == [0, 1, 0, 2, 3, 1, 0]
    assert (found.seeds.dtype, found.seed_inverse.dtype) == (np.int32, np.int64)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_a_mask_of_bytes_is_no_two_seeds(graph, dtype):
    sampler = NeighborSampler(graph, [2], device="cpu")
    mask = (np.arange(graph.num_nodes) % 2).astype(dtype)
    for take in (
        sampler.sample,
        lambda seeds: sampler.sample_many([seeds]),
        lambda seeds: sampler.epoch(seeds, 8),
    ):
        with pytest.raises(TypeError, match="seeds as a mask must hold booleans"):
            take(mask)
    assert sampler.sample(mask[:-1]).seeds.tolist() == [0, 1]  # as many as no mask has


def test_a_range_is_a_sequence(graph):
    sampler = NeighborSampler(graph, [2], device="cpu")
    assert sampler.sample(range(5)).seeds.tolist() == [0, 1, 2, 3, 4]


def test_given_seeds_are_not_changed(graph):
    seeds = np.array(SEEDS)
    NeighborSampler(graph, [4], device="cpu").sample(seeds)
    assert seeds.tolist() == SEEDS


def test_duplicates_change_no_pick(graph):
    """A merged seed draws once: the sample is that of the distinct seeds."""
    sampler = NeighborSampler(graph, [4, 3], device="cpu")
    merged, plain = sampler.sample(SEEDS), sampler.sample([9, 3, 0, 119])
    assert np.array_equal(merged.node_ids, plain.node_ids)
    for a, b in zip(merged.picks, plain.picks, strict=True):
        assert np.array_equal(a.positions, b.positions)
    assert merged.canonical() != plain.canonical()  # yet the caller gave other seeds


class OnTheGpu:
    """As much of a CuPy array as the check of device seeds looks at: their values stay on the device."""

    def __init__(self, array) -> None:
        self.array, self.ndim, self.size, self.dtype, self.shape = (
            array, array.ndim, array.size, array.dtype, array.shape,
        )  # fmt: skip


OnTheGpu.__module__ = "cupy"


def test_device_seeds_are_checked_without_reading_them():
    seeds = OnTheGpu(np.array([5, 10**6]))
    assert seed_array(seeds, 10) is seeds  # the kernel checks the range
    with pytest.raises(TypeError, match="seeds must be integers .got dtype float64"):
        seed_array(OnTheGpu(np.zeros(3)), 10)
    with pytest.raises(ValueError, match="seeds must name at least one vertex"):
        seed_array(OnTheGpu(np.zeros(0, int)), 10)
    with pytest.raises(ValueError, match="seeds must be one-dimensional"):
        seed_array(OnTheGpu(np.zeros((2, 2), int)), 10)
