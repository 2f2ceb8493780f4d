"""The settings of a sample: what is accepted, and which argument an error names."""

from __future__ import annotations

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.device.arrays import array_module
from gnnsample_lab.sampling.neighbors.spec import MAX_FANOUT, MAX_HOPS, SampleSpec, check_pick, make_spec

DEFAULTS = {"pick": "floyd", "replace": False, "weighted": False, "expand": "frontier", "seed": 0}


def spec(fanouts, **options):
    return make_spec(fanouts, **{**DEFAULTS, **options})


@pytest.mark.parametrize(
    "fanouts", [[10, 5], (10, 5), np.array([10, 5]), range(10, 0, -5), [np.int64(10), np.uint8(5)]], ids=repr
)
def test_fanouts_may_be_any_integers(fanouts):
    found = spec(fanouts)
    assert found.fanouts == (10, 5) and found.num_hops == 2
    assert all(type(k) is int for k in found.fanouts)


def test_fanouts_may_be_an_iterator():
    assert spec(k for k in (10, 5)).fanouts == (10, 5)


@pytest.mark.parametrize(
    ("fanouts", "error", "message"),
    [
        ([], ValueError, "fanouts must name at least one hop"),
        ([10, 0], ValueError, "fanouts must be 1.*-1 for all.*got 0"),
        ([-2], ValueError, "fanouts must be .*got -2"),
        ([MAX_FANOUT + 1], ValueError, f"fanouts must be .*{MAX_FANOUT}.*got {MAX_FANOUT + 1}"),
        ([1] * (MAX_HOPS + 1), ValueError, f"fanouts may name at most {MAX_HOPS} hops"),
        ([2.0], TypeError, "fanouts must be integers.*2.0 of type float"),
        ([np.float32(2)], TypeError, "fanouts must be integers"),
        ([True], TypeError, "fanouts must be integers"),
        (["3"], TypeError, "fanouts must be integers"),
        ([None], TypeError, "fanouts must be integers"),
        (10, TypeError, "fanouts must be a list of integers"),
        ("10", TypeError, "fanouts must be a list of integers"),
        (None, TypeError, "fanouts must be a list of integers"),
    ],
    ids=repr,
)
def test_bad_fanouts(fanouts, error, message):
    with pytest.raises(error, match=message):
        spec(fanouts)


def test_the_limits_themselves_are_allowed():
    assert spec([MAX_FANOUT] * MAX_HOPS).num_hops == MAX_HOPS
    assert spec([1], seed=2**64 - 1).seed == 2**64 - 1


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"pick": "fisher"},
            ValueError,
            "pick must be one of 'floyd', 'reservoir', 'fisher-yates' .*'fisher'",
        ),
        ({"expand": "all"}, ValueError, "expand must be one of 'frontier', 'new' .*'all'"),
        ({"seed": -1}, ValueError, "seed must be between 0 and .*got -1"),
        ({"seed": 2**64}, ValueError, "seed must be between"),
        ({"seed": 1.0}, TypeError, "seed must be an integer"),
        ({"seed": True}, TypeError, "seed must be an integer"),
        ({"seed": "0"}, TypeError, "seed must be an integer"),
    ],
    ids=str,
)
def test_bad_options(options, error, message):
    with pytest.raises(error, match=message):
        spec([5], **options)


def test_rules_are_numbered_as_in_the_kernels():
    numbers = [
        spec([1], pick="floyd").rule,
        spec([1], pick="reservoir").rule,
        spec([1], replace=True).rule,
        spec([1], weighted=True).rule,
        spec([1], weighted=True, replace=True).rule,
        spec([1], pick="fisher-yates").rule,
    ]
    assert numbers == [0, 1, 2, 3, 4, 5]
    # `pick` does not apply to draws by weight or with replacement.
    assert spec([1], pick="reservoir", replace=True).rule == 2
    assert spec([1], pick="reservoir", weighted=True).rule == 3
    assert spec([1], pick="fisher-yates", weighted=True).rule == 3


def test_only_a_block_per_vertex_draws_by_fisher_and_yates():
    check_pick(spec([1], pick="fisher-yates"), "block-bsp")
    check_pick(spec([1], pick="fisher-yates", replace=True), "bsp")  # where `pick` does not apply
    check_pick(spec([1]), "bsp")
    for name, value in (("strategy", "bsp"), ("method", "csp"), ("sampler", "FusedSampler")):
        with pytest.raises(ValueError, match=f"got pick='fisher-yates' with {name}='{value}'"):
            check_pick(spec([1], pick="fisher-yates"), value, name)


def test_a_fused_sampler_refuses_it_too():
    graph = lab.Graph.from_edges([0, 1], [1, 0], 2, feat=np.ones((2, 4), np.float32))
    with pytest.raises(ValueError, match="pick='fisher-yates' with sampler='FusedSampler'"):
        lab.FusedSampler(graph, [2, 2], strategy="block-bsp", pick="fisher-yates", device="cpu")


def test_a_spec_is_a_value():
    assert spec([3, -1]) == SampleSpec((3, -1))
    assert hash(spec([3, -1])) == hash(SampleSpec((3, -1)))
    assert spec([3, -1]) != spec([3, -1], seed=1)


def test_host_arrays_belong_to_numpy():
    assert array_module(np.zeros(1)) is np
