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
from gnnsample_lab.sampling.apps.walks import PPR, DeepWalk, PinSAGEWalk
from gnnsample_lab.sampling.engine.run import MAX_SAMPLE_ID
from gnnsample_lab.sampling.engine.shape import UNBOUNDED_STEPS

from .asking import Questions
from .layout import Layout, make_layout
from .reading import APP_METHODS, Lists, WalkRule, largest_weights, lists_of, walked
from .sampler import SLICES
from .traffic import Traffic
from .words import UNIFORM, WEIGHTED, key_of, move, restarts

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

    With ``method="direct"`` on GPUs ``walks``, ``steps`` and ``vertices`` are CuPy arrays, and so is what
    :meth:`collect` returns.
    """

    walks: np.ndarray
    steps: np.ndarray
    vertices: np.ndarray
    num_steps: int
    mine: np.ndarray
    per_sample: int
    _home: np.ndarray
    _layout: Layout
    _paths: Any = None  # ids [num_steps, walks of this rank] where it has drawn whole paths

    def collect(self) -> Any:
        """Paths of this rank's samples, ids ``[m, num_steps, walks of a sample]``, -1 where a walk had ended.

        All ranks call it together: one exchange, and none with ``method="direct"``. ``result.steps[s][i, k]`` of
        ``lab.run_app`` is ``collect()[i, s, k]``.
        """
        if self._paths is not None:
            paths = self._paths.reshape(self.num_steps, self.mine.size, self.per_sample)
            return paths.transpose(1, 0, 2).copy()
        home = Questions(self._layout.exchange, self._home[self.walks // self.per_sample])
        walks, steps, vertices = (
            home.ask(column, "picks")
            for column in (self.walks.astype(np.int32), self.steps.astype(np.int32), self.vertices)
        )
        out = np.full((self.mine.size, self.num_steps, self.per_sample), -1, dtype=self.vertices.dtype)
        sample, k = walks // self.per_sample, walks % self.per_sample
        out[np.searchsorted(self.mine, sample), steps, k] = vertices
        return out


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
        method: ``"csp"``, walkers go to the owners of lists; or ``"direct"``, each rank reads lists where they lie: on
            GPUs by one kernel over NVLink, on CPU ranks in memory-mapped files. Reads are not counted. Within a host.

    Raises:
        TypeError, ValueError: an argument of the wrong kind or not allowed; the message names it.
    """

    def __init__(
        self, source: Any, app: Any, *, rank: Any, seed: int = 0, partition: Any = None, folder: Any = None,
        hosts: Any = None, method: str = "csp",
    ) -> None:  # fmt: skip
        checks.choice("method", method, APP_METHODS)
        if type(app) not in _APPS:
            names = ", ".join(kind.__name__ for kind in _APPS)
            raise TypeError(f"app must be one of lab.apps' {names} (got {checks.shown(app)})")
        self.app, self.seed = app, checks.seed(seed)
        self._key = key_of(self.seed)
        self._layout: Layout = make_layout(source, rank, partition, folder, hosts, method, method == "direct")
        self.part, self.rank = self._layout.part, rank
        self.traffic: Traffic = self._layout.exchange.new_traffic()
        self._per_sample = app.num_walks if isinstance(app, PinSAGEWalk) else 1
        self._restart = app.restart if isinstance(app, PinSAGEWalk) else 0.0
        self._termination = app.termination if isinstance(app, PPR) else -1.0
        self._limit = UNBOUNDED_STEPS
        if not isinstance(app, PPR):
            self._limit = app.walk_length if isinstance(app, PinSAGEWalk) else app.length
        weights = self.part.weights if isinstance(app, DeepWalk) and app.weighted else None
        self._rule = UNIFORM if weights is None else WEIGHTED
        self._prefix = np.zeros(1, np.uint64) if weights is None else weights.prefix
        self._most = np.zeros(1, np.int64) if weights is None else largest_weights(self.part)
        self.method = method
        self._lists = lists_of(self._layout, weights is not None, self._key) if method == "direct" else None

    def walk(self, roots: Any, first_sample: int = 0, by: str = "equal") -> Walks:
        """Walk from all roots; all ranks call it together with the same arguments.

        Args:
            roots: of all ranks' samples, original ids ``[S]``; repeated ones are samples of their own.
            first_sample: id of sample 0 in the draws.
            by: which samples are this rank's, as in :meth:`Sampler.slice`.

        Raises:
            TypeError, ValueError: no vertices; an id out of range; too many walks; an unknown ``by``.
            RuntimeError: another rank failed or did not come; walks did not end within 10,000 steps.
        """
        every = checks.host_integers("roots", checks.ids("roots", roots, self.part.num_nodes))
        last = checks.whole("roots", every.size * self._per_sample, 0, 2**31 - 1)
        first = checks.whole("first_sample", first_sample, 0, MAX_SAMPLE_ID - max(last - 1, 0))
        whose = self._layout.shares(every, checks.choice("by", by, SLICES))
        mine = np.flatnonzero(whose == self.rank.index)
        exchange, ids = self._layout.exchange, self.part.indices.dtype
        self.traffic = exchange.traffic = exchange.new_traffic()
        every = every.astype(ids)
        if self.method == "direct":
            if self._lists is None:
                raise RuntimeError("the walker was closed")
            return self._walk_alone(self._lists, every, first, whose, mine)
        waiting = np.empty(0, dtype=np.int32)
        walks = (mine[:, None] * self._per_sample + np.arange(self._per_sample)).ravel().astype(np.int32)
        at = every[walks // self._per_sample]
        trail: list[tuple[np.ndarray, int, np.ndarray]] = []
        for step in range(self._limit):
            # Where a step may end all walks, ranks stop together.
            if self._may_end and not exchange.max("flags", np.array([walks.size]))[0]:
                break
            walks, came = self._step(walks, at, first, step)
            there = came >= 0
            trail.append((walks[there], step, came[there]))
            walks, at, waiting = self._next(walks, came, waiting, every, first, step + 1)
        else:
            if self._may_end and exchange.max("flags", np.array([walks.size]))[0]:
                raise RuntimeError(f"walks did not end within {UNBOUNDED_STEPS} steps")
        count = sum(v.size for _, _, v in trail)
        self.traffic.ideal += count * ids.itemsize
        return Walks(
            np.concatenate([np.empty(0, np.int64), *(w for w, _, _ in trail)]).astype(np.int64),
            np.concatenate([np.empty(0, np.int64), *(np.full(v.size, s) for _, s, v in trail)]),
            np.concatenate([np.empty(0, ids), *(v for _, _, v in trail)]),
            len(trail), mine, self._per_sample, np.searchsorted(exchange.members, whose), self._layout,
        )  # fmt: skip

    def _walk_alone(
        self, lists: Lists, every: np.ndarray, first: int, whose: np.ndarray, mine: np.ndarray
    ) -> Walks:
        """Walk from this rank's roots; ranks meet where nobody knows how many steps there were."""
        rule = WalkRule(
            self._per_sample, self._rule == WEIGHTED, self._termination, self._restart, self._limit, self._key
        )
        on_gpu, xp, exchange = self.rank.device != "cpu", lists.xp, self._layout.exchange
        with streams.call(on_gpu), runtime.lock:
            found, longest, goes_on = walked(lists, xp.asarray(every[mine]), xp.asarray(first + mine), rule)
            if self._may_end:
                longest, goes_on = exchange.max("flags", np.array([longest, goes_on])).tolist()
            paths = xp.full((longest, found.shape[1]), -1, found.dtype)
            paths[: found.shape[0]] = found
            steps, at = xp.nonzero(paths >= 0)
            numbers = xp.asarray((mine[:, None] * self._per_sample + np.arange(self._per_sample)).ravel())
        if goes_on:
            raise RuntimeError(f"walks did not end within {UNBOUNDED_STEPS} steps")
        self.traffic.label = "reads were not counted"
        home = np.searchsorted(exchange.members, whose)
        return Walks(
            numbers[at], steps, paths[steps, at], longest, mine, self._per_sample, home, self._layout, paths
        )

    @property
    def _may_end(self) -> bool:
        """Whether draws end walks, so that nobody knows how many steps there will be."""
        return self._termination >= 0

    def _step(
        self, walks: np.ndarray, at: np.ndarray, first: int, step: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Send walkers to the owners of the lists at which they stand; the walks that came here, and where they go."""
        part, owners = self.part, Questions(self._layout.exchange, self._layout.partition.owner[at])
        stand, walks = owners.ask(at), owners.ask(walks)
        came = np.empty(stand.size, dtype=part.indices.dtype)
        move(
            first + walks.astype(np.int64) // self._per_sample, walks.astype(np.int64) % self._per_sample,
            self._layout.rows(stand, part.rank), part.indptr, part.indices, self._prefix, self._most, step,
            self._rule, self._termination, self._key, came,
        )  # fmt: skip
        return walks, came

    def _next(
        self,
        walks: np.ndarray,
        came: np.ndarray,
        waiting: np.ndarray,
        roots: np.ndarray,
        first: int,
        step: int,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The walkers that go on, from where, and those that have ended but may restart: these wait where they are."""
        if self._restart > 0:
            walks = np.concatenate([walks, waiting])
            came = np.concatenate([came, np.full(waiting.size, -1, dtype=came.dtype)])
            sample, again = walks.astype(np.int64) // self._per_sample, np.empty(walks.size, dtype=np.bool_)
            k = walks.astype(np.int64) % self._per_sample
            restarts(first + sample, k, step, self._restart, self._key, again)
            came = np.where(again, roots[sample], came)
            waiting = walks[came < 0]
        return walks[came >= 0], came[came >= 0], waiting

    def close(self) -> None:
        """Give back what other ranks may read; all ranks call it together. May be called twice."""
        lists, self._lists = self._lists, None
        if lists is not None:
            lists.close()

    def __repr__(self) -> str:
        return f"Walker({self.part!r}, {self.app.name}, {self.rank!r})"
