"""Random walks: one vertex a step (NextDoor, sections 3 and 4.2)."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.checks import choice, flag
from gnnsample_lab.sampling.engine.language.app import INF, NULL, SamplingApp, uniform_roots

from .choices import length as checked_length
from .choices import number, size, uniform_edge, weighted_edge

MAX_BIAS = 2.0**16
"""Largest p or q of node2vec, and largest 1 / p or 1 / q; beyond, next to no trial might be accepted."""


class DeepWalk(SamplingApp):
    """Walks of a fixed length (Perozzi et al., KDD'14), by edge weights where the graph has them.

    DeepWalk's own walks are uniform; biased by static weights is NextDoor's wording (section 3) and KnightKing's. A
    walk ends early at a vertex without (weighted) in-edges.

    Args:
        length: steps of a walk; 100 in NextDoor's evaluation (section 8), 40 in DeepWalk.
        weighted: False walks uniformly even where edges have weights.
    """

    def __init__(self, length: int = 100, weighted: bool = True) -> None:
        self.length, self.weighted = checked_length("length", length), flag("weighted", weighted)

    def edge_weights(self, graph: Any) -> Any:
        return super().edge_weights(graph) if self.weighted else None

    def prepare(self, graph: Any) -> None:
        # Chosen before compilation: the uniform walk reads no weights.
        self.choose = uniform_edge if self.edge_weights(graph) is None else weighted_edge

    def next(self, s: Any, transits: Any, src_edges: Any, step: Any, rng: Any) -> Any:
        edge = self.choose(transits, src_edges, rng)
        return src_edges[edge] if edge != NULL else NULL

    def steps(self) -> int:
        return self.length

    def sample_size(self, step: int) -> int:
        return 1


class PPR(DeepWalk):
    """Walks that stop by chance: personalised PageRank (Haveliwala, WWW'02), DeepWalk's step otherwise.

    Before each step the walk ends with probability ``termination``, so that it has ``1 / termination`` vertices on
    average, its root included. Where no walk meets a dead end, its last vertex is distributed as the root's
    personalised PageRank.

    Args:
        termination: 1e-6 to 1; 1/100 in NextDoor's evaluation. The longest of many walks has some
            ``20 / termination`` steps, and a run of more than 10 000 ends with an error unless it is given
            ``max_steps``, which cuts walks there.
        weighted: False walks uniformly even where edges have weights.
    """

    def __init__(self, termination: float = 1 / 100, weighted: bool = True) -> None:
        self.termination, self.weighted = (
            number("termination", termination, 1e-6, 1),
            flag("weighted", weighted),
        )

    def next(self, s: Any, transits: Any, src_edges: Any, step: Any, rng: Any) -> Any:
        if rng.chance(self.termination):
            return NULL
        edge = self.choose(transits, src_edges, rng)
        return src_edges[edge] if edge != NULL else NULL

    def steps(self) -> int:
        return INF


class Node2Vec(DeepWalk):
    """Walks that remember where they come from (Grover and Leskovec, KDD'16), by rejection as in KnightKing.

    From v, reached from t, an edge to u is followed in proportion to its weight times

    - 1/p where u = t: the walk returns,
    - 1 where u is an in-neighbour of t: it stays near,
    - 1/q elsewhere: it moves away.

    NextDoor's text (section 4.2) has p, 1/q and 1 in these places; this is node2vec's own definition. An edge is
    proposed by weight alone and accepted with its factor over the largest of the three. Where the random number is
    below even the smallest, u need not be looked up among t's neighbours (KnightKing's lower bound).

    Args:
        length: steps of a walk; 100 in NextDoor's evaluation, 80 in node2vec.
        p: return parameter, 2**-16 to 2**16; 2.0 in NextDoor's evaluation.
        q: in-out parameter, 2**-16 to 2**16; 0.5 in NextDoor's evaluation.
        weighted: False proposes uniformly even where edges have weights.

    A sample is one walk, of one root: what it remembers is its own.

    The largest of 1/p, 1 and 1/q over the smallest is how many trials an edge takes at worst. Where it comes near
    2**20, a step may find none in as many trials, which ends the run with an error.
    """

    one_root = True
    _loop_advice = "of p and q, 1/p, 1 and 1/q lie too far apart for rejection"

    def __init__(self, length: int = 100, p: float = 2.0, q: float = 0.5, weighted: bool = True) -> None:
        super().__init__(length, weighted)
        self.p, self.q = number("p", p, 1 / MAX_BIAS, MAX_BIAS), number("q", q, 1 / MAX_BIAS, MAX_BIAS)

    def prepare(self, graph: Any) -> None:
        super().prepare(graph)
        top = max(1 / self.p, 1, 1 / self.q)
        self.returns, self.near, self.away = 1 / self.p / top, 1 / top, 1 / self.q / top
        self.always = min(self.returns, self.near, self.away)

    def next(self, s: Any, transits: Any, src_edges: Any, step: Any, rng: Any) -> Any:
        # show: ask for the next vertex
        before = s.prev_vertex(2, 0)
        while True:
            edge = self.choose(transits, src_edges, rng)
            if edge == NULL:
                return NULL
            candidate = src_edges[edge]
            if before == NULL:  # the first step remembers nothing
                return candidate
            x = rng.uniform()
            if x < self.always:
                return candidate
            accepted = self.away
            if candidate == before:
                accepted = self.returns
            elif s.prev_edges(2, 0).has(candidate):
                accepted = self.near
            if x < accepted:
                return candidate
        # end: ask for the next vertex


class MultiRW(SamplingApp):
    """Many walkers of whom one moves at a step (Ribeiro and Towsley, IMC'10); GraphSAINT's (Zeng et al., ICLR'20).

    The sample's roots are the walkers; the one that moves is replaced by where it has come to. Choosing it in
    proportion to its degree is the papers' rule, by which every edge of the graph is followed equally often in the
    long run; NextDoor's code (figure 4c) chooses uniformly.

    Args:
        length: steps; 100 in NextDoor's evaluation.
        num_roots: walkers, uniform vertices unless roots are given; 100 in NextDoor's evaluation.
        select: "degree" or "uniform": who moves.
    """

    def __init__(self, length: int = 100, num_roots: int = 100, select: str = "degree") -> None:
        self.length, self.num_roots = checked_length("length", length), size("num_roots", num_roots)
        choice("select", select, ("degree", "uniform"))
        self.select, self.by_degree = select, select == "degree"

    def step_transits(self, step: Any, s: Any, transit_idx: Any, rng: Any) -> Any:
        if not self.by_degree:
            return s.roots[rng.below(s.num_roots())]
        total = 0
        for root in s.roots:
            total += root.degree()
        left = rng.below(total) if total > 0 else 0
        for root in s.roots:
            left -= root.degree()
            if left < 0:
                return root
        return NULL  # no walker can move

    def next(self, s: Any, transits: Any, src_edges: Any, step: Any, rng: Any) -> Any:
        v = src_edges[rng.below(len(src_edges))] if len(src_edges) > 0 else NULL
        if v != NULL:
            s.roots.replace(transits[0], v)
        return v

    def num_transits(self, step: int) -> int:
        return 1

    def steps(self) -> int:
        return self.length

    def sample_size(self, step: int) -> int:
        return 1

    def initial_samples(self, graph: Any, num_samples: int, seed: int) -> np.ndarray:
        return uniform_roots(num_samples, self.num_roots, graph.num_nodes, seed)


class PinSAGEWalk(SamplingApp):
    """Short walks from a root that vote for its neighbours (Ying et al., KDD'18): ``r.top(k)`` counts the votes.

    All walks of a root are one sample: transit k is where walk k stands. A walk ends where its step finds no
    in-neighbour and sets out from the root again only when it restarts. Settings as of :class:`lab.PinSAGESampler`.
    A sample has one root.

    Args:
        num_walks: walks of each root; 4 in GNNLab's evaluation of PinSAGE (section 7).
        walk_length: steps of a walk; 3 there.
        restart: probability in [0, 1] with which a step sets out from the root.
    """

    one_root = True

    def __init__(self, num_walks: int = 4, walk_length: int = 3, restart: float = 0.0) -> None:
        self.num_walks, self.walk_length = (
            size("num_walks", num_walks),
            checked_length("walk_length", walk_length),
        )
        self.restart = number("restart", restart, 0, 1)

    def num_transits(self, step: int) -> int:
        return self.num_walks

    def step_transits(self, step: Any, s: Any, transit_idx: Any, rng: Any) -> Any:
        if step == 0 or rng.chance(self.restart):
            return s.roots[0]
        return s.prev_vertex(1, transit_idx)

    def next(self, s: Any, transits: Any, src_edges: Any, step: Any, rng: Any) -> Any:
        return src_edges[rng.below(len(src_edges))] if len(src_edges) > 0 else NULL

    def steps(self) -> int:
        return self.walk_length

    def sample_size(self, step: int) -> int:
        return 1
