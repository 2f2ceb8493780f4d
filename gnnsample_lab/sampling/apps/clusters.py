"""Cluster sampling (NextDoor, section 4.2)."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.checks import choice, host_integers, optional, whole
from gnnsample_lab.checks import seed as checked_seed
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.sampling.engine.language.app import NULL, SamplingApp

from .choices import distinct_roots, once_per_graph, size


class ClusterGCN(SamplingApp):
    """Whole clusters as mini-batches (Chiang et al., KDD'19): a sample is all members of a few clusters.

    A root stands for the cluster it is in; the step adds the cluster's other members. ``r.induced()`` has the edges
    among them. Clusters are found in ``prepare`` and kept for as long as graph, partition and seed are the same.

    Args:
        clusters_per_sample: clusters of a sample, distinct ones unless roots are given; 20 in ClusterGCN (Reddit) and
            in NextDoor's evaluation.
        num_clusters: how many to cut the graph into; None for 1500 as ClusterGCN does (Reddit), fewer on a small
            graph: about 150 vertices each, 20 at least.
        partition: "metis" (needs pymetis, and time on a large graph), "random" as in NextDoor's evaluation, or the
            cluster of each vertex, ``int[N]``, as any integers.
        seed: of the partition.
    """

    def __init__(
        self, clusters_per_sample: int = 20, num_clusters: int | None = None, partition: Any = "metis", seed: int = 0
    ) -> None:  # fmt: skip
        self.clusters_per_sample = size("clusters_per_sample", clusters_per_sample)
        self.num_clusters = optional(size, "num_clusters", num_clusters)
        self.partition, self.seed = checked_partition(partition), checked_seed(seed)

    @once_per_graph(lambda app, graph: (app.partition, app.num_clusters, app.seed))
    def prepare(self, graph: Any) -> None:
        self.cluster = assign(graph, self.partition, self.num_clusters, self.seed)
        self.members = np.argsort(self.cluster, kind="stable")
        self.begin = np.append(0, np.cumsum(np.bincount(self.cluster)))
        self.largest = int(np.diff(self.begin).max())

    def next(self, s: Any, transits: Any, src_edges: Any, step: Any, rng: Any) -> Any:
        mine = self.cluster[transits[0]]
        at = self.begin[mine] + s.slot()
        if at >= self.begin[mine + 1] or self.members[at] == transits[0]:
            return NULL  # the cluster is smaller than the largest; the root is in the sample already
        return self.members[at]

    def steps(self) -> int:
        return 1

    def sample_size(self, step: int) -> int:
        return self.largest

    def initial_samples(self, graph: Any, num_samples: int, seed: int) -> np.ndarray:
        self.prepare(graph)
        check_enough(self.clusters_per_sample, len(self.begin) - 1)
        chosen = distinct_roots(num_samples, self.clusters_per_sample, len(self.begin) - 1, seed)
        return self.members[self.begin[chosen]]


def check_enough(wanted: int, clusters: int) -> None:
    """ValueError unless there are as many clusters as a sample is to have: METIS leaves parts of small graphs empty."""
    if wanted > clusters:
        raise ValueError(
            f"clusters_per_sample must be at most the number of clusters with vertices, {clusters} (got {wanted})"
        )


def checked_partition(partition: Any) -> Any:
    """``partition`` of :class:`ClusterGCN`: a name, or integers in host memory."""
    if isinstance(partition, str):
        return choice("partition", partition, ("metis", "random"))
    return host_integers("partition", partition)


def assign(graph: Any, partition: Any, num_clusters: int | None, seed: int) -> np.ndarray:
    """Cluster of each vertex, ``int64[N]``, numbered from 0 without gaps; arguments as :class:`ClusterGCN`'s.

    Raises:
        ImportError: "metis" without pymetis.
        TypeError, ValueError: no such partition, no vertices, or more clusters than vertices.
    """
    num_nodes = graph.num_nodes
    if num_nodes == 0:
        raise ValueError("the graph has no vertices to put into clusters")
    parts = min(num_nodes, 1500, max(20, num_nodes // 150)) if num_clusters is None else num_clusters
    parts = size("num_clusters", parts)
    if parts > num_nodes:
        raise ValueError(f"num_clusters must be at most the number of vertices, {num_nodes} (got {parts})")
    if not isinstance(partition, str):
        found = checked_partition(partition)
        if found.shape != (num_nodes,):
            raise ValueError(f"partition must have shape ({num_nodes},) (got {found.shape})")
    elif partition == "random":
        found = np.random.default_rng(seed).permutation(num_nodes) % parts
    else:
        found = metis(graph, parts, seed)
    return np.unique(found, return_inverse=True)[1].astype(np.int64)


def metis(graph: Any, num_parts: int, seed: int) -> np.ndarray:
    """METIS's parts of the graph with its edges taken as undirected, ``int64[N]`` (Karypis and Kumar, SISC 1998).

    Raises:
        ImportError: pymetis is not installed.
    """
    try:
        import pymetis
    except ImportError:
        raise ImportError(
            "partition='metis' needs pymetis: pip install pymetis; or give partition='random' or your own"
        ) from None
    from gnnsample_lab.graph.csc import rows_of

    seed = whole("seed", seed, 0, 2**31 - 1)  # METIS's is a C int
    src = to_host(graph.indices).astype(np.int64)
    dst = rows_of(to_host(graph.indptr)).astype(np.int64)
    src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
    # METIS takes neither self-loops nor parallel edges.
    keys = np.unique((dst * graph.num_nodes + src)[src != dst])
    begins = np.zeros(graph.num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(keys // graph.num_nodes, minlength=graph.num_nodes), out=begins[1:])
    lists = pymetis.CSRAdjacency(begins, keys % graph.num_nodes)
    result = pymetis.part_graph(num_parts, lists, options=pymetis.Options(seed=seed))
    return np.asarray(result.vertex_part, dtype=np.int64)
