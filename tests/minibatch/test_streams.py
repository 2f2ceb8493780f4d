"""What every result says about when it may be read, without a GPU."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.device import streams
from gnnsample_lab.minibatch.feeds import induced_batches, voted_batch

RESULTS = {
    "sample": lambda g: lab.NeighborSampler(g, [3, 2], device="cpu").sample([1, 2]),
    "traced": lambda g: lab.NeighborSampler(g, [3, 2], device="cpu", trace=True).sample([1, 2]),
    "walks": lambda g: lab.PinSAGESampler(g, 2, device="cpu").sample([1, 2]),
    "epoch": lambda g: next(iter(lab.NeighborSampler(g, [3], device="cpu").epoch([1, 2, 3], 2))),
    "run_app": lambda g: lab.run_app(g, lab.apps.DeepWalk(3), [1, 2], device="cpu"),
    "minibatches": lambda g: lab.minibatches(lab.run_app(g, lab.apps.KHop([3, 2]), [1, 2], device="cpu"))[0],
    "induced": lambda g: induced_batches(lab.run_app(g, lab.apps.KHop([3, 2]), [1, 2], device="cpu"))[0],
    "voted": lambda g: voted_batch(lab.run_app(g, lab.apps.DeepWalk(3), [1, 2], device="cpu"), 2),
    "relabel": lambda g: lab.relabel([1, 2], [[2, 3]], g.num_nodes, device="cpu"),
    "extract": lambda g: lab.FeatureCache(np.ones((4, 2), np.float32), ratio=1.0, device="cpu").extract([1])[
        1
    ],
    "mark": lambda g: lab.FeatureCache(np.ones((4, 2), np.float32), ratio=0.0, device="cpu").mark([1]),
}


@pytest.mark.parametrize("what", RESULTS)
def test_results_in_host_memory_are_ready(graph, what):
    ready = RESULTS[what](graph).ready
    assert ready is streams.DONE
    assert ready.query() and ready.done
    for stream in (None, object(), 7):
        ready.wait(stream)
    ready.synchronize()


def test_a_copy_on_the_host_is_ready(graph):
    batch = RESULTS["sample"](graph)
    assert batch.to_cpu().ready is streams.DONE


def test_blocks_are_made_once(graph):
    for expand in ("frontier", "new"):
        batch = lab.NeighborSampler(graph, [3, 2], expand=expand, device="cpu").sample([1, 2])
        assert batch.blocks is batch.blocks


def test_sampling_imports_no_torch():
    code = """
        import sys
        import numpy as np
        import gnnsample_lab as lab
        g = lab.Graph.from_edges([0, 1, 2], [1, 2, 0], 3)
        sampler = lab.NeighborSampler(g, [2], device="cpu")
        batch = sampler.sample([0])
        batch.blocks, batch.canonical(), batch.ready.wait()
        list(sampler.epoch([0, 1, 2], 2))
        lab.FeatureCache(np.ones((3, 2), np.float32), ratio=1.0, device="cpu").extract(batch.node_ids)
        lab.run_app(g, lab.apps.DeepWalk(2), [0], device="cpu").samples
        assert "torch" not in sys.modules and "cupy" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
