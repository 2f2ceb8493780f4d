"""``lab.distributed.Walker``: random walks over a graph in parts; walkers move to the owner of their next list.

DSP (section 4.2) takes a walk for node-wise sampling with a fanout of 1 and leaves the reshuffle out: a walker is sent
on from where it stands, and nobody sends back where it came from. What a rank drew stays there until the end;
:meth:`Walks.collect` brings whole paths home in one exchange.

With ``method="direct"`` walkers stay: each rank follows its own walks and reads lists at their owners.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab import checks
from gnnsample_lab.device import runtime, streams
from gnnsample_lab.device.arrays import offsets_of
from gnnsample_lab.sampling.apps.walks import PPR, DeepWalk, PinSAGEWalk
from gnnsample_lab.sampling.engine.run import MAX_SAMPLE_ID
from gnnsample_lab.sampling.engine.shape import UNBOUNDED_STEPS

from .asking import Questions
from .exchange import Exchange
from .layout import Layout, checksum, make_layout
from .own import OwnLists, own_lists
from .reading import APP_METHODS, HostLists, Lists, WalkRule, label_of, lists_of, twin_of, walked
from .sampler import SLICES
from .traffic import Traffic
from .words import key_of

_APPS = (DeepWalk, PPR, PinSAGEWalk)


@dataclass(frozen=True, eq=False)
class Walks:
    """Steps that were drawn on one rank: walk ``walks[i]`` came to ``vertices[i]`` in step ``steps[i]``.

    Attributes:
        walks: number of the walk, ``sample * walks of a sample + k``, ``int64[n]``.
        steps: from 0 on, ``int64[n]``.
        vertices: original ids ``[n]``. A walk that ended has no entry.
        num_steps: steps of the longest walk of all ranks that walk together.
        mine: samples of this rank: their places in ``roots``, ``int64[m]``.
        per_sample: walks of a sample.

    Entries ascend by step, then by walk. On GPUs ``walks``, ``steps`` and ``vertices`` are CuPy arrays, and so is what
    :meth:`collect` returns.
    """

    walks: np.ndarray
    steps: np.ndarray
    vertices: np.ndarray
    num_steps: int
    mine: np.ndarray
    per_sample: int
    _home: np.ndarray  # of each sample, the member of the exchange whose it is
    _own: OwnLists | None
    _paths: Any = None  # ids [num_steps, walks of this rank] where it has drawn whole paths

    def collect(self) -> Any:
        """Paths of this rank's samples, ids ``[m, num_steps, walks of a sample]``, -1 where a walk had ended.

        All ranks call it together: one exchange, and none with ``method="direct"``. ``result.steps[s][i, k]`` of
        ``lab.run_app`` is ``collect()[i, s, k]``.
        """
        if self._paths is not None:
            paths = self._paths.reshape(self.num_steps, self.mine.size, self.per_sample)
            return paths.transpose(1, 0, 2).copy()
        assert self._own is not None
        with self._own.working():
            return self._brought_home(self._own)

    def _brought_home(self, own: OwnLists) -> Any:
        xp, per = own.xp, self.per_sample
        home = Questions(own.exchange, xp.asarray(self._home)[self.walks // per], own.by_peer)
        walks, steps, vertices = (
            home.ask(column, "picks")
            for column in (self.walks.astype(np.int32), self.steps.astype(np.int32), self.vertices)
        )
        shape = self.mine.size, self.num_steps, per
        out = xp.full(shape[0] * shape[1] * shape[2], -1, dtype=self.vertices.dtype)
        if walks.size:
            place = xp.searchsorted(xp.asarray(self.mine), walks // per)
            out[(place * self.num_steps + steps) * per + walks % per] = vertices
        return out.reshape(shape)


def _any_goes_on(exchange: Exchange, at: Any) -> bool:
    """Whether a walk of any rank stands somewhere."""
    return bool(exchange.max("flags", np.array([int((at >= 0).sum())]))[0])


class Walker:
    """Walks whose steps are drawn at the owners of the lists; together they are the walks of one GPU, bit for bit.

    Those are ``lab.run_app(graph, app, roots, first_sample=..., seed=seed)``.

    Args:
        source: as of :class:`Sampler`.
        app: ``lab.apps.DeepWalk``, ``PPR`` or ``PinSAGEWalk`` (restarts); they read the list of one vertex a step.
            Others, such as ``Node2Vec``, read two.
        rank: the :class:`Rank`.
        seed: 64-bit key of the draws.
        partition, folder, hosts: as of :class:`Sampler`; where each host holds the topology, walkers stay on it.
        method: ``"csp"``, walkers go to the owners of lists, on GPUs from GPU to GPU, and are drawn by kernels there;
            or ``"direct"``, each rank reads lists where they lie: on GPUs by one kernel over NVLink, on CPU ranks in
            memory-mapped files. Within a host.
        count_reads: on GPUs, count what ``"direct"`` reads: the host walks once more. On CPU ranks it is always
            counted.

    Attributes:
        traffic: what this rank moved in the last call.

    By ``"csp"`` a step has an exchange of sizes, one of vertices and one of walks' numbers. On GPUs the rank's part is
    copied into its GPU's memory, and the host waits once a step, for how many walkers go to each rank: messages have
    exactly their size. (Where ranks share no host memory, a second time, for how many come.) Only ``PPR``, whose draws
    end walks, asks once more, all ranks together: whether any walk goes on.

    Raises:
        TypeError, ValueError: an argument of the wrong kind or not allowed; the message names it. Ranks that were given
            different ones all raise.
    """

    def __init__(
        self, source: Any, app: Any, *, rank: Any, seed: int = 0, partition: Any = None, folder: Any = None,
        hosts: Any = None, method: str = "csp", count_reads: bool = False,
    ) -> None:  # fmt: skip
        checks.choice("method", method, APP_METHODS)
        count_reads = checks.flag("count_reads", count_reads)
        if type(app) not in _APPS:
            names = ", ".join(kind.__name__ for kind in _APPS)
            raise TypeError(f"app must be one of lab.apps' {names} (got {checks.shown(app)})")
        self.app, self.seed = app, checks.seed(seed)
        self._layout: Layout = make_layout(source, rank, partition, folder, hosts, method, method == "direct")
        self.part, self.rank = self._layout.part, rank
        self.traffic: Traffic = self._layout.exchange.new_traffic()
        limit = UNBOUNDED_STEPS
        if not isinstance(app, PPR):
            limit = app.walk_length if isinstance(app, PinSAGEWalk) else app.length
        weighted = isinstance(app, DeepWalk) and app.weighted and self.part.weights is not None
        self._rule = WalkRule(
            app.num_walks if isinstance(app, PinSAGEWalk) else 1,
            weighted,
            app.termination if isinstance(app, PPR) else -1.0,
            app.restart if isinstance(app, PinSAGEWalk) else 0.0,
            limit,
            key_of(self.seed),
        )
        self._layout.check_alike({"app": (app.name, *self._rule[:-1]), "seed": self.seed, "method": method})
        self.method, self._is_new = method, True
        self._lists: Lists | None = None
        self._twin: HostLists | None = None
        self._own: OwnLists | None = None
        if method == "direct":
            self._lists = lists_of(self._layout, weighted, self._rule.key)
            self._twin = twin_of(self._lists, self._layout, weighted, self._rule.key, count_reads)
        else:
            self._own = own_lists(self._layout, weighted, self._rule.key)

    def walk(self, roots: Any, first_sample: int = 0, by: str = "equal") -> Walks:
        """Walk from all roots; all ranks call it together with the same arguments.

        Args:
            roots: of all ranks' samples, original ids ``[S]``; repeated ones are samples of their own.
            first_sample: id of sample 0 in the draws; that of the last one is at most 2**40 - 1.
            by: which samples are this rank's, as in :meth:`Sampler.slice`.

        Raises:
            TypeError, ValueError: no vertices; an id out of range; too many walks; an unknown ``by``; arguments of the
                first call that another rank has not. Later calls are not compared.
            RuntimeError: another rank failed or did not come; walks did not end within 10,000 steps.
        """
        every = checks.host_integers("roots", checks.ids("roots", roots, self.part.num_nodes))
        checks.whole("roots", every.size * self._rule.per_sample, 0, 2**31 - 1)
        first = checks.whole("first_sample", first_sample, 0, MAX_SAMPLE_ID - max(every.size - 1, 0))
        whose = self._layout.shares(every, checks.choice("by", by, SLICES))
        mine = np.flatnonzero(whose == self.rank.index)
        exchange, ids = self._layout.exchange, self.part.indices.dtype
        if self._is_new:
            self._layout.check_alike({"roots": checksum(every), "first_sample": first, "by": by})
            self._is_new = False
        self.traffic = exchange.traffic = exchange.new_traffic()
        every = every.astype(ids)
        if self.method == "direct":
            if self._lists is None:
                raise RuntimeError("the walker was closed")
            return self._walk_alone(self._lists, every, first, whose, mine)
        assert self._own is not None
        with self._own.working():
            return self._walk_together(self._own, every, first, whose, mine)

    def _walk_together(
        self, own: OwnLists, every: np.ndarray, first: int, whose: np.ndarray, mine: np.ndarray
    ) -> Walks:
        """Send walkers on from owner to owner. Those that have ended stay where they are; some set out again."""
        xp, exchange, rule, ids = own.xp, own.exchange, self._rule, every.dtype
        numbers = (mine[:, None] * rule.per_sample + np.arange(rule.per_sample)).ravel().astype(np.int32)
        walks, at = xp.asarray(numbers), xp.asarray(every[numbers // rule.per_sample])
        roots = xp.asarray(every)
        trail: list[tuple[Any, Any]] = []
        here: list[np.ndarray] = []  # of each step's walkers, where those begin and end that were here before
        for step in range(rule.limit):
            # Where a step may end all walks, ranks stop together.
            if self._may_end and not _any_goes_on(exchange, at):
                break
            asked = Questions(exchange, own.owners(at), own.by_peer)
            waiting = walks[asked.stayed] if rule.restart > 0 else None
            at, walks = asked.ask(at), asked.ask(walks)
            here.append(offsets_of(asked.receive)[exchange.index : exchange.index + 2])
            at = own.move(walks, at, first, step, rule)
            trail.append((walks, at))
            if waiting is not None:
                walks = xp.concatenate([walks, waiting])
                at = xp.concatenate([at, xp.full(waiting.size, -1, ids)])
                own.set_out(walks, at, roots, first, step + 1, rule)
        else:
            if self._may_end and _any_goes_on(exchange, at):
                raise RuntimeError(f"walks did not end within {UNBOUNDED_STEPS} steps")
        num_steps, ends = len(trail), np.cumsum([came.size for _, came in trail], dtype=np.int64)
        if not trail:  # and one dtype below, which CuPy joins by one kernel
            trail.append((walks[:0], at[:0]))
        walks = xp.concatenate([walks for walks, _ in trail]).astype(np.int64)
        vertices = xp.concatenate([came for _, came in trail])
        steps = xp.searchsorted(xp.asarray(ends), xp.arange(vertices.size), side="right").astype(np.int64)
        there = xp.flatnonzero(vertices >= 0)
        if there.size:
            there = there[xp.argsort((steps * (every.size * rule.per_sample) + walks)[there])]
        # In the order of all steps; whoever has passed an odd number of these bounds was here before.
        bounds = [begin + own for begin, own in zip([0, *ends.tolist()], here)]
        passed = xp.searchsorted(xp.asarray(np.array(bounds, np.int64).ravel()), there, side="right")
        stayed = int((passed % 2).sum())
        self.traffic.ideal += there.size * ids.itemsize
        self.traffic.ideal_remote += (there.size - stayed) * ids.itemsize
        return Walks(
            walks[there], steps[there], vertices[there], num_steps, mine, rule.per_sample,
            np.searchsorted(exchange.members, whose), own,
        )  # fmt: skip

    def _walk_alone(
        self, lists: Lists, every: np.ndarray, first: int, whose: np.ndarray, mine: np.ndarray
    ) -> Walks:
        """Walk from this rank's roots; ranks meet where nobody knows how many steps there were."""
        rule = self._rule
        on_gpu, xp, exchange = self.rank.device != "cpu", lists.xp, self._layout.exchange
        with streams.call(on_gpu), runtime.lock:
            found, longest, goes_on = walked(lists, xp.asarray(every[mine]), xp.asarray(first + mine), rule)
            if self._may_end:
                longest, goes_on = exchange.max("flags", np.array([longest, goes_on])).tolist()
            paths = xp.full((longest, found.shape[1]), -1, found.dtype)
            paths[: found.shape[0]] = found
            steps, at = xp.nonzero(paths >= 0)
            numbers = xp.asarray((mine[:, None] * rule.per_sample + np.arange(rule.per_sample)).ravel())
        if goes_on:
            raise RuntimeError(f"walks did not end within {UNBOUNDED_STEPS} steps")
        if self._twin is not None:
            walked(self._twin, every[mine], first + mine, rule)
        self.traffic.label = label_of(lists, self._twin)
        home = np.searchsorted(exchange.members, whose)
        return Walks(numbers[at], steps, paths[steps, at], longest, mine, rule.per_sample, home, None, paths)

    @property
    def _may_end(self) -> bool:
        """Whether draws end walks, so that nobody knows how many steps there will be."""
        return self._rule.termination >= 0

    def close(self) -> None:
        """Give back what other ranks may read; all ranks call it together. May be called twice."""
        lists, self._lists = self._lists, None
        if lists is not None:
            lists.close()

    def __repr__(self) -> str:
        return f"Walker({self.part!r}, {self.app.name}, {self.rank!r})"
