"""``SamplingApp``: a graph sampling application as six functions (NextDoor, sections 3 and 4).

One Python definition runs on both devices: ``next`` and ``step_transits`` are compiled, by Numba for the CPU and by
numba-cuda for the GPU; the other functions are called by the host. The protocols below say what the compiled
functions are handed.
"""

from __future__ import annotations

import contextlib
import enum
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Protocol

import numpy as np

from gnnsample_lab.checks import array as checked_array
from gnnsample_lab.checks import shown
from gnnsample_lab.device import philox
from gnnsample_lab.sampling.memory import check_fits

IMPORTED = time.time()
"""When applications could first be written: a file that is older is as it was imported."""
NULL = -1
"""What ``next`` returns to add no vertex; what a transit that is not there is."""
INF = -1
"""What ``steps`` returns when every sample ends by itself."""


class SamplingType(enum.Enum):
    """Whose neighbours ``next`` draws from (paper, section 3)."""

    INDIVIDUAL = "individual"
    """One transit's; ``next`` is called ``sample_size(step)`` times per transit."""
    COLLECTIVE = "collective"
    """All transits' of the sample together; ``next`` is called ``sample_size(step)`` times per sample."""


class SamplingAppError(RuntimeError):
    """A function of an application cannot be compiled, or failed in a sample; the message names its line."""


class Vertex(Protocol):
    """A vertex: its global id, an integer, with these methods. All are 0 or empty for ``NULL``."""

    def degree(self) -> int:
        """In-neighbours."""

    def max_edge_weight(self) -> int:
        """Largest of :meth:`Edges.weight`, 0 without edges."""

    def has_edge(self, vertex: int) -> bool:
        """Whether ``vertex`` is an in-neighbour; a binary search."""

    def edges(self) -> Edges:
        """The in-neighbours."""


class Edges(Protocol):
    """A list of edges, in-neighbours in ascending order: ``len(edges)``, ``edges[i]``, iteration.

    ``src_edges`` of a collective application is the combined neighbourhood, the transits' lists one behind another.
    Weights are whole numbers in proportion to what :meth:`SamplingApp.edge_weights` returns, one scale for the graph,
    so that both devices draw the same (1 each for an unweighted graph).
    """

    def __len__(self) -> int: ...
    def __getitem__(self, i: int) -> Vertex: ...
    def weight(self, i: int) -> int:
        """Weight of edge ``i``, below 2**32."""

    def prefix(self, i: int) -> int:
        """Sum of the weights of the first ``i`` edges; ``prefix(len(edges))`` is the total."""

    def search(self, x: int) -> int:
        """The edge ``i`` with ``prefix(i) <= x < prefix(i + 1)``."""

    def has(self, vertex: int) -> bool:
        """Whether an edge leads to ``vertex``."""


class Transits(Protocol):
    """The transits whose edges ``src_edges`` are: one when individual, all of the sample when collective."""

    def __len__(self) -> int: ...
    def __getitem__(self, k: int) -> Vertex: ...


class Roots(Protocol):
    """The sample's roots, its own copy."""

    def __getitem__(self, i: int) -> Vertex: ...
    def replace(self, old: int, new: int) -> None:
        """Put ``new``, a vertex or ``NULL``, in the place of the first root that is ``old``.

        For applications of one draw a step.
        """


class Sample(Protocol):
    """The sample that grows."""

    roots: Roots

    def prev_vertex(self, i: int, pos: int) -> Vertex:
        """Slot ``pos`` of the ``i``-th last step; the roots before step 0, ``NULL`` before them."""

    def prev_edges(self, i: int, pos: int) -> Edges:
        """Edges of that vertex."""

    def prev_count(self, i: int) -> int:
        """Slots of the ``i``-th last step."""

    def num_roots(self) -> int: ...
    def add_edge(self, u: int, v: int) -> None:
        """Record an edge from ``u`` to ``v`` in the sample; nothing where one of them is ``NULL``.

        :meth:`lab.AppResult.edges <gnnsample_lab.sampling.engine.results.result.AppResult.edges>` gives the edges of
        each step. The graph need not have the edge.
        """

    def size(self) -> int:
        """Vertices of the sample when the step began, roots included."""

    def id(self) -> int:
        """Number of the sample, which its draws are keyed by."""

    def slot(self) -> int:
        """Which of the ``sample_size(step)`` calls this is; 0 in ``step_transits``."""

    def transit_index(self) -> int:
        """Which transit of the sample this is."""

    def num_nodes(self) -> int:
        """Vertices of the graph."""


class Stream(Protocol):
    """The random numbers of one call, a function of seed, sample id, step, transit index and slot."""

    def below(self, n: int) -> int:
        """Uniform in ``0 .. n - 1``, an error for ``n < 1``: exactly up to ``n = 2**32``, each to 2**-64 beyond."""

    def bits(self) -> int:
        """32 random bits."""

    def uniform(self) -> float:
        """A multiple of 2**-32 in ``[0, 1)``."""

    def chance(self, p: float) -> bool:
        """True with probability ``p``, rounded down to a multiple of 2**-32."""


class SamplingApp:
    """Base class of sampling applications. Write ``next``, ``steps`` and ``sample_size``; the rest has defaults.

    ``next``, ``step_transits`` and the functions that they call mean what Python means by them. They may use:

    - whole numbers, floats and truth values; ``if``, ``while``, ``for`` over ``range`` and over lists of the arguments;
      conditional expressions, ``and``, ``or``, ``not``; tuple assignment; ``raise`` and ``assert``;
    - ``+ - * / // % << >> & | ^ ~``, ``**`` with a constant exponent, comparisons, ``min``, ``max``, ``abs``,
      ``round``, ``int``, ``float``, ``bool``, ``len``;
    - numbers on ``self``, of the module, and of enclosing functions, as they are when the application is compiled;
    - one-dimensional arrays, lists and tuples of numbers on ``self``, copied when the application is compiled:
      ``self.table[i]``, ``len``, iteration, and ``self.table.search(x)``, the last ``i`` with ``table[i] <= x`` of a
      sorted one;
    - ``v.name`` of a vertex, for arrays on ``self`` that :attr:`vertex_attributes` names;
    - methods of ``self`` and plain functions written by the same rules, without recursion and decorators.

    What cannot be told before the run is refused with its line: a name that may be read before it is assigned, or
    that holds different things (a whole number and a float, two arrays, ``src_edges`` and another list) where paths
    meet and is then read; ``next`` returning anything but a whole number or None.

    What differs from Python, on both devices alike:

    - Whole numbers have 64 bits and wrap without notice. Beside a float, a whole number is a double first. ``/`` of
      whole numbers divides doubles. ``//`` and ``%`` take whole numbers, ``**`` neither floats nor variable exponents,
      ``min`` and ``max`` numbers of one kind.
    - Indices count from the front: a negative one is an error.
    - A shift by a count outside 0..63, ``int(x)`` of a number outside 64 bits, and all rounds of a call's ``while``
      loops beyond 2**20 are errors. ``for`` loops are not bounded.
    - Not checked: that an array given to ``search`` is sorted.

    An index that is not there, a division by zero, another of these errors, or a raised one ends the run with
    :class:`SamplingAppError`, which names sample and line: the lowest sample with an error, and of its errors the one
    on the lowest line.
    """

    vertex_attributes: tuple[str, ...] = ()
    """Names of arrays on ``self``, a number for each vertex: ``v.name`` is ``self.name[v]`` for every vertex ``v``."""
    one_root: bool = False
    """Whether a sample has one root alone: samples of several are refused."""
    max_redraws: int = 32
    """Rounds in which ``unique`` draws again, at most 63."""
    _loop_advice: str = ""
    """Follows the error of a ``while`` loop that does not end: which arguments to change."""

    def next(self, s: Any, transits: Any, src_edges: Any, step: Any, rng: Any) -> Any:
        """One new vertex for the sample, or ``NULL``.

        Args:
            s: the :class:`Sample`.
            transits: :class:`Transits` whose edges are drawn from.
            src_edges: their :class:`Edges`.
            step: number of the step, from 0.
            rng: :class:`Stream` of this call.
        """
        raise NotImplementedError(f"{type(self).__name__} must define next")

    def steps(self) -> int:
        """How many steps, or ``INF``: until no sample has a transit left."""
        raise NotImplementedError(f"{type(self).__name__} must define steps")

    def sample_size(self, step: int) -> int:
        """Calls of ``next`` per transit (individual) or per sample (collective), the paper's ``m``."""
        raise NotImplementedError(f"{type(self).__name__} must define sample_size")

    def sampling_type(self) -> SamplingType:
        """Individual (default) or collective."""
        return SamplingType.INDIVIDUAL

    def step_transits(self, step: Any, s: Any, transit_idx: Any, rng: Any) -> Any:
        """The transit of number ``transit_idx``, or ``NULL``; by default the vertex that the last step put there."""
        return s.prev_vertex(1, transit_idx)

    def unique(self, step: int) -> bool:
        """Whether the vertices that the step adds to a sample are to be distinct."""
        return False

    def num_transits(self, step: int) -> int | None:
        """Transits of a sample; None for as many as the last step has slots (the roots at step 0)."""
        return None

    def prepare(self, graph: Any) -> None:
        """Called before compilation: set the numbers and arrays that ``next`` reads from ``self``.

        Args:
            graph: on the CPU, whichever device runs the application.
        """

    def edge_weights(self, graph: Any) -> Any:
        """The weights that :class:`Edges` offers, ``float[E]``, or None for 1 each; by default the graph's.

        They are finite and not negative; anything else ends the run with a TypeError or ValueError.
        """
        return graph.edge_weight

    def initial_samples(self, graph: Any, num_samples: int, seed: int) -> np.ndarray:
        """Roots where the caller gives none, ``int64[S]`` or ``int64[S, R]``; here one uniform vertex per sample."""
        return uniform_roots(num_samples, 1, graph.num_nodes, seed)

    @property
    def is_collective(self) -> bool:
        kind = self.sampling_type()
        if not isinstance(kind, SamplingType):
            allowed = " or ".join(map(str, SamplingType))
            raise TypeError(f"sampling_type() must be {allowed} (got {shown(kind)})")
        return kind is SamplingType.COLLECTIVE

    @property
    def name(self) -> str:
        """Class name, for titles."""
        return type(self).__name__

    def __repr__(self) -> str:
        shown = {k: v for k, v in vars(self).items() if isinstance(v, (bool, int, float, str, tuple))}
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in shown.items() if not k.startswith('_'))})"


def weights_of(app: SamplingApp, graph: Any) -> Any:
    """What ``app.edge_weights(graph)`` returns, an array of a number for each edge, or None.

    Whether the numbers are finite and not negative is looked at where they are summed up, once for each array.

    Raises:
        TypeError: not an array of real numbers.
        ValueError: not one for each edge.
    """
    found = app.edge_weights(graph)
    if found is None or found is graph.edge_weight:
        return found
    name = f"{app.name}.edge_weights()"
    weight = checked_array(name, found)
    if weight.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be real numbers, or None (got {weight.dtype})")
    if weight.shape != (graph.num_edges,):
        raise ValueError(
            f"{name} must have shape ({graph.num_edges},), one per edge (got {tuple(weight.shape)})"
        )
    return weight


def check_attributes(app: SamplingApp, num_nodes: int) -> None:
    """Refuse arrays of ``vertex_attributes`` that have not a number for each vertex.

    Raises:
        TypeError: ``vertex_attributes`` is not a tuple or list of names.
        ValueError: an array has another length.
    """
    names = app.vertex_attributes
    if not isinstance(names, (tuple, list)) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{app.name}.vertex_attributes must be a tuple of names (got {shown(names)})")
    for name in names:
        # What is no array of numbers at all is refused where a function reads it.
        length = getattr(getattr(app, name, None), "__len__", lambda: num_nodes)()
        if length != num_nodes:
            raise ValueError(
                f"{app.name}.{name} must have a number for each of {num_nodes} vertices (got {length})"
            )


ROOTS_STEP = 0xFFFFFF
"""Step number of the draws that choose roots: one that no step has."""


def uniform_roots(num_samples: int, per_sample: int, num_nodes: int, seed: int) -> np.ndarray:
    """Uniform vertices, ``int64[num_samples, per_sample]``; 64 bits and multiply-high, key ``seed``.

    Inside :func:`roots_from` they are those of later samples.

    Raises:
        MemoryError: more of them than fit into memory.
        ValueError: there are no vertices.
    """
    if num_nodes < 1:
        raise ValueError("graph has no vertices to choose roots from")
    check_fits("num_samples x roots of a sample", num_samples, per_sample, 8)
    out = np.empty((num_samples, per_sample), dtype=np.int64)
    philox.app_integers(
        out, np.uint64(num_nodes), np.uint64(ROOTS_STEP), np.uint64(seed), np.int64(_first_root.get())
    )
    return out


_first_root: ContextVar[int] = ContextVar("_first_root", default=0)


@contextlib.contextmanager
def roots_from(first_sample: int) -> Iterator[None]:
    """In the block :func:`uniform_roots` draws for the samples from ``first_sample`` on, so that a run that is cut in
    parts has in each part the roots that the whole would have there."""
    before = _first_root.set(first_sample)
    try:
        yield
    finally:
        _first_root.reset(before)
