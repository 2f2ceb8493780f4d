"""The result of sampling one hop (its picks), and the settings that determine it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gnnsample_lab.checks import choice, flag, is_cuda_array, items, shown, whole
from gnnsample_lab.checks import seed as checked_seed
from gnnsample_lab.device.arrays import array_module, offsets_of, to_host

PICKS = ("floyd", "reservoir", "fisher-yates")
_FISHER_YATES = 5
EXPANDS = ("frontier", "new")
COMPLETIONS = ("exact", "paper")
QUEUES = ("teams", "blocks")
MAX_HOPS = 15
MAX_FANOUT = 4096


@dataclass(frozen=True, eq=False)
class HopPicks:
    """The picks of one hop, compact. All ids are global.

    Attributes:
        frontier: expanded vertices, ``int32[n]`` or ``int64[n]``.
        counts: picks of each frontier vertex, ``int32[n]``.
        neighbors: picked in-neighbours, grouped by frontier vertex, ids ``[sum(counts)]``.
        positions: edge position (index into ``graph.indices``) of each pick, ``int64[sum(counts)]``.
        known_offsets: :attr:`offsets`, where who makes the picks has them already.
    """

    frontier: Any
    counts: Any
    neighbors: Any
    positions: Any
    known_offsets: Any = field(default=None, repr=False)

    @cached_property
    def offsets(self) -> Any:
        """Where each vertex's picks begin: the exclusive scan of ``counts``, ``int64[n + 1]``."""
        return offsets_of(self.counts) if self.known_offsets is None else self.known_offsets

    @property
    def num_picks(self) -> int:
        return int(self.neighbors.size)

    def coo(self) -> tuple[Any, Any, Any]:
        """The hop's result in COO arrays, as DGL and PGSampler leave it (PGSampler, section III): an entry a pick.

        Returns:
            ``(row, column, edge)``: the vertex that picked and the in-neighbour that it picked, global ids
            ``[num_picks]``, and the position in ``graph.indices`` where the pick stands, ``int64[num_picks]``. Entries
            of a row are consecutive.
        """
        xp = array_module(self.frontier)
        owner = xp.searchsorted(self.offsets[1:], xp.arange(self.num_picks), side="right")
        return self.frontier[owner], self.neighbors, self.positions

    def to_cpu(self) -> HopPicks:
        """The same picks as NumPy arrays."""
        if not is_cuda_array(self.frontier):
            return self
        return HopPicks(*map(to_host, (self.frontier, self.counts, self.neighbors, self.positions)))


@dataclass(frozen=True)
class SampleSpec:
    """The settings that determine a sample, together with graph, seeds and batch id.

    Attributes:
        fanouts: picks per vertex, one number per hop, the hop that expands the seeds first; -1 takes all in-neighbours.
        pick: ``"floyd"`` (O(fanout) draws), ``"reservoir"`` (O(degree) draws, the rule of DGL and PGSampler) or
            ``"fisher-yates"`` (O(fanout) draws, the rule of GNNLab; ``strategy="block-bsp"`` only): picks are the first
            places of a permutation. GNNLab's release permutes the graph's own neighbour array, so that a draw depends
            on all draws before it; here the permutation is virtual and private to the (vertex, hop), and nothing writes
            the graph.
        replace: draw with replacement.
        weighted: draw in proportion to the edge weights (``pick`` has no effect then).
        expand: ``"frontier"`` expands all vertices reached so far at every hop (DGL, PGSampler);
            ``"new"`` expands only those reached for the first time (PyTorch Geometric, cuGraph).
        seed: 64-bit key of the random number generator.
    """

    fanouts: tuple[int, ...]
    pick: str = "floyd"
    replace: bool = False
    weighted: bool = False
    expand: str = "frontier"
    seed: int = 0

    @property
    def num_hops(self) -> int:
        return len(self.fanouts)

    @property
    def rule(self) -> int:
        """Number of the pick rule in kernels: 0 floyd, 1 reservoir, 2 replace, 3 weighted, 4 weighted+replace,
        5 fisher-yates."""
        if self.weighted:
            return 4 if self.replace else 3
        if self.replace:
            return 2
        return _FISHER_YATES if self.pick == "fisher-yates" else PICKS.index(self.pick)


def make_spec(fanouts: Any, pick: str, replace: bool, weighted: bool, expand: str, seed: Any) -> SampleSpec:
    """Validate sampler arguments.

    Raises:
        TypeError: a fanout or the seed is not an integer, ``replace`` or ``weighted`` is not a bool.
        ValueError: an empty or too long fanout list, a fanout of 0 or below -1, an unknown rule, a negative seed.
    """
    checked = checked_fanouts(fanouts)
    choice("pick", pick, PICKS)
    choice("expand", expand, EXPANDS)
    replace, weighted = flag("replace", replace), flag("weighted", weighted)
    return SampleSpec(checked, pick, replace, weighted, expand, checked_seed(seed))


def check_pick(spec: SampleSpec, strategy: str, name: str = "strategy") -> None:
    """ValueError unless ``strategy`` (what ``name`` names) offers the rule by which ``spec`` draws."""
    if spec.rule == _FISHER_YATES and strategy != "block-bsp":
        raise ValueError(
            f"pick='fisher-yates' is offered by strategy='block-bsp' only: use it, or pick='floyd', whose sets are "
            f"equally likely (got pick='fisher-yates' with {name}={strategy!r})"
        )


def checked_fanouts(fanouts: Any, name: str = "fanouts") -> tuple[int, ...]:
    """Check fanouts (picks per vertex, one number per hop) and return them as a tuple.

    Raises:
        TypeError: a fanout is not an integer.
        ValueError: there is no hop or there are too many, or a fanout is 0, below -1 or too large.
    """
    checked: list[int] = []
    given = items(name, fanouts, "a list of integers")
    if len(given) > MAX_HOPS:
        raise ValueError(f"{name} may name at most {MAX_HOPS} hops (got {len(given)})")
    for fanout in given:
        try:
            value = whole(name, fanout, None)
        except TypeError:
            raise TypeError(f"{name} must be integers (got {shown(fanout)})") from None
        if value == 0 or value < -1 or value > MAX_FANOUT:
            raise ValueError(f"{name} must be 1..{MAX_FANOUT}, or -1 for all in-neighbours (got {value})")
        checked.append(value)
    if not checked:
        raise ValueError(f"{name} must name at least one hop (got an empty list)")
    return tuple(checked)
