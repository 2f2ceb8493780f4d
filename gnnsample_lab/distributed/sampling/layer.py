"""``lab.distributed.LayerSampler``: layer-wise sampling from a graph in parts (DSP, section 4.2).

A layer is drawn for the whole batch from the neighbours of all its vertices together. DSP's equation 2 splits that in
two: a vertex of the last layer is chosen by the total weight of its list, then a neighbour from that list. Here the
ranks tell each other the totals of their vertices, 16 bytes a vertex, so that each can lay them end to end. Then each
rank draws all slots of the layer (keyed draws: the same on all ranks), keeps those that fall on its own vertices, and
asks the owners of the lists for the neighbours there. No list travels.

With ``method="direct"`` ranks read lists where they lie. A layer is small, so each draws all of it and keeps its slice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab import checks
from gnnsample_lab.device import runtime, streams
from gnnsample_lab.device.arrays import offsets_of
from gnnsample_lab.device.philox import MAX_BATCH_ID
from gnnsample_lab.sampling.apps.layer import Layer
from gnnsample_lab.sampling.engine.shape import UNBOUNDED_STEPS

from .asking import ask_owners
from .layout import Layout, checksum, make_layout
from .own import OwnLists, own_lists
from .reading import APP_METHODS, DrawnLayer, HostLists, Lists, filled, label_of, lists_of, twin_of
from .sampler import SLICES
from .traffic import Traffic
from .words import key_of


@dataclass(frozen=True, eq=False)
class LayerSlice:
    """What one rank found of a layer.

    Attributes:
        slots: places in the layer, ascending, ``int64[n]``.
        vertices: the vertices there, original ids ``[n]``.
        transits: place in the last layer of the vertex whose list each was drawn from, ``int64[n]``; for the first
            layer the place in the batch's seeds.
        size: places of the layer, filled or not, on all ranks together.

    On GPUs the arrays are CuPy.
    """

    slots: np.ndarray
    vertices: np.ndarray
    transits: np.ndarray
    size: int


@dataclass(frozen=True, eq=False)
class LayerBatch:
    """One rank's slices of a layer-wise sample.

    Attributes:
        seeds: this rank's seeds, original ids ``[n]``, and their places in the batch, ``seed_slots``, ``int64[n]``.
        layers: the layers, the one drawn from the seeds' neighbours first.
        batch_id: of the draw.
    """

    seeds: np.ndarray
    seed_slots: np.ndarray
    layers: tuple[LayerSlice, ...]
    batch_id: int


class LayerSampler:
    """Layers of bounded size, drawn for the whole batch; the ranks' slices together are one GPU's sample, bit for bit.

    That one is ``lab.run_app(graph, lab.apps.Layer(final_size, step_size, weighted, replace), [seeds],
    first_sample=batch_id, seed=seed)``.

    Args:
        source: as of :class:`Sampler`.
        final_size, step_size, weighted, replace: as of :class:`lab.apps.Layer <gnnsample_lab.sampling.apps.Layer>`.
        rank: the :class:`Rank`.
        seed: 64-bit key of the draws.
        partition, folder, hosts: as of :class:`Sampler`. Where each host holds the topology, ranks ask within their
            host, and the layers' totals go between hosts as well: the batch is one.
        method: ``"csp"``, as DSP, on GPUs from GPU to GPU, drawn by kernels; or ``"direct"``: each rank reads lists
            where they lie, on GPUs by kernels over NVLink, on CPU ranks in memory-mapped files, and draws whole layers.
            Within a host. On GPUs ``"csp"`` copies the rank's part into its GPU's memory.
        count_reads: on GPUs, count what ``"direct"`` reads: the host draws each sample once more. On CPU ranks it is
            always counted.

    Attributes:
        traffic: what this rank moved in the last call.

    Raises:
        TypeError, ValueError: an argument of the wrong kind or not allowed; the message names it. Ranks that were given
            different ones all raise.
    """

    def __init__(
        self,
        source: Any,
        final_size: int = 2000,
        step_size: int = 1000,
        *,
        rank: Any,
        weighted: bool = False,
        replace: bool = True,
        seed: int = 0,
        partition: Any = None,
        folder: Any = None,
        hosts: Any = None,
        method: str = "csp",
        count_reads: bool = False,
    ) -> None:
        checks.choice("method", method, APP_METHODS)
        count_reads = checks.flag("count_reads", count_reads)
        self.app = Layer(final_size, step_size, weighted, replace)
        self.seed = checks.seed(seed)
        self._layout: Layout = make_layout(source, rank, partition, folder, hosts, method, method == "direct")
        self.part, self.rank = self._layout.part, rank
        # As on one GPU, a graph without weights is drawn from uniformly.
        self._weighted = self.app.weighted and self.part.weights is not None
        self._layout.check_alike({
            "final_size": self.app.final_size, "step_size": self.app.step_size, "weighted": self._weighted,
            "replace": self.app.replace, "seed": self.seed, "method": method,
        })  # fmt: skip
        self.traffic: Traffic = self._layout.exchange.new_traffic()
        self.method, self._is_new = method, True
        self._lists: Lists | None = None
        self._twin: HostLists | None = None
        self._own: OwnLists | None = None
        if method == "direct":
            given = self._layout, self._weighted, key_of(self.seed)
            self._lists = lists_of(*given)
            self._twin = twin_of(self._lists, *given, count_reads)
        else:
            self._own = own_lists(self._layout, self._weighted, key_of(self.seed))

    def sample(self, seeds: Any, batch_id: int = 0, by: str = "equal") -> LayerBatch:
        """This rank's slices of a batch's layers; all ranks call it together with the same arguments.

        Args:
            seeds: the whole batch's seeds, original ids ``[n]``; repeated ones count as often.
            batch_id: 0..2**32 - 1.
            by: which seeds are this rank's, as in :meth:`Sampler.slice`.

        Raises:
            TypeError, ValueError: no vertices, a batch id out of range, an unknown ``by``; in the first call, arguments
                that another rank has not. Later calls are not compared.
            RuntimeError: another rank failed or did not come; no end after 10,000 layers.
        """
        every = checks.host_integers("seeds", checks.ids("seeds", seeds, self.part.num_nodes))
        batch_id = checks.whole("batch_id", batch_id, 0, MAX_BATCH_ID)
        layout = self._layout
        slots = layout.share(every, checks.choice("by", by, SLICES))
        if self._is_new:
            layout.check_alike({"seeds": checksum(every), "batch_id": batch_id, "by": by})
            self._is_new = False
        self.traffic = layout.exchange.traffic = layout.world.traffic = layout.world.new_traffic()
        mine = every[slots].astype(self.part.indices.dtype)
        if self.method == "direct":
            if self._lists is None:
                raise RuntimeError("the sampler was closed")
            return LayerBatch(mine, slots, self._drawn_here(self._lists, every, by, batch_id), batch_id)
        assert self._own is not None
        with self._own.working():
            return LayerBatch(
                mine, slots, self._drawn_together(self._own, slots, mine, every.size, batch_id), batch_id
            )

    def _drawn_together(
        self, own: OwnLists, slots: np.ndarray, mine: np.ndarray, total: int, batch_id: int
    ) -> tuple[LayerSlice, ...]:
        """This rank's slices of layers of which each rank draws what falls on its own vertices."""
        batch: list[LayerSlice] = []
        before, vertices = own.xp.asarray(slots), own.xp.asarray(mine)
        while total < self.app.final_size:
            if len(batch) == UNBOUNDED_STEPS:
                raise RuntimeError(f"the sample did not end within {UNBOUNDED_STEPS} layers")
            found = self._layer(own, before, vertices, batch_id, len(batch), total)
            if found is None:
                break
            layer, added = found
            batch.append(layer)
            before, vertices, total = layer.slots, layer.vertices, total + added
        return tuple(batch)

    def _drawn_here(self, lists: Lists, every: np.ndarray, by: str, batch_id: int) -> tuple[LayerSlice, ...]:
        """This rank's slices of layers that it draws whole."""
        whose = self._layout.shares(every, by)
        seeds = every.astype(self.part.indices.dtype)

        def drawn(lists: Lists) -> list[DrawnLayer]:
            return lists.layers(seeds, whose, self.rank.index, self.app, batch_id)

        with streams.call(self.rank.device != "cpu"), runtime.lock:
            found = drawn(lists)
        if self._twin is not None:
            drawn(self._twin)
        self.traffic.label = label_of(lists, self._twin)
        return tuple(LayerSlice(*layer, self.app.step_size) for layer in found)

    def _layer(
        self, own: OwnLists, before: Any, vertices: Any, batch_id: int, step: int, total: int
    ) -> tuple[LayerSlice, int] | None:
        """One layer and how many vertices it has on all ranks; None where no rank has a vertex to go on from."""
        xp, world, app, dtype = own.xp, self._layout.world, self.app, self.part.indices.dtype
        amounts, _ = ask_owners(own, vertices, [], own.totals, "weights", np.dtype(np.int64))
        told = world.all_gather("weights", xp.concatenate([before.astype(np.int64), amounts]))
        every = xp.concatenate([of_rank.reshape(2, of_rank.size // 2) for of_rank in told], axis=1)
        if not every.size:
            return None
        order = xp.argsort(every[0])
        places, sums = every[0][order], every[1][order]
        of_entry = np.repeat(np.arange(len(told)), [of_rank.size // 2 for of_rank in told])
        whose = xp.asarray(of_entry)[order]
        starts, is_mine = offsets_of(sums), whose == world.index
        weight = int(starts[-1])
        vertex_at = xp.full(places.size, -1, dtype=dtype)
        if vertices.size:
            vertex_at[xp.searchsorted(places, before)] = vertices

        def drawn(slots: Any, attempt: int) -> tuple[Any, Any]:
            """Draw slots; each rank finds the vertices of those that fall on its own, and tells them to find repeated
            ones. With replacement nobody has to know the others'."""
            at = own.draws(slots, weight, batch_id, step, app.step_size, attempt)
            transit = xp.searchsorted(starts, at, side="right") - 1
            here = xp.flatnonzero(is_mine[transit])
            inner = (at - starts[transit])[here]
            inner = inner if self._weighted else inner.astype(np.int32)
            asked = vertex_at[transit[here]]
            found, away = ask_owners(own, asked, [inner], own.neighbors, "picks", dtype)
            self.traffic.ideal += found.nbytes
            self.traffic.ideal_remote += away * dtype.itemsize
            names = xp.zeros(slots.size, dtype=dtype)
            if app.replace:
                if here.size:
                    names[here] = found
                return names, transit
            # Each rank's names ascend by slot.
            by_rank = xp.argsort(whose[transit], kind="stable")
            names[by_rank] = xp.concatenate(world.all_gather("picks", found))
            return names, transit

        # NextDoor's rule: a layer is cut where the sample is full.
        wanted = min(app.step_size, app.final_size - total) if weight else 0
        vertex, transit = filled(wanted, dtype, app, drawn, xp)
        filled_slots = vertex >= 0
        slots = xp.flatnonzero(filled_slots & is_mine[transit])
        layer = LayerSlice(slots, vertex[slots], places[transit[slots]], app.step_size)
        return layer, int(filled_slots.sum())

    def close(self) -> None:
        """Give back what other ranks may read; all ranks call it together. May be called twice."""
        lists, self._lists = self._lists, None
        if lists is not None:
            lists.close()

    def __repr__(self) -> str:
        a = self.app
        return (
            f"LayerSampler({self.part!r}, final_size={a.final_size}, step_size={a.step_size}, {self.rank!r})"
        )
