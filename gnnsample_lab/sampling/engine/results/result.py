"""``AppResult``: the samples that an application has grown."""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from gnnsample_lab.checks import is_cuda_array
from gnnsample_lab.device import streams
from gnnsample_lab.device.arrays import array_module
from gnnsample_lab.sampling.engine.shape import StepShape

from . import links, votes


@dataclass(frozen=True, eq=False, repr=False)
class AppResult:
    """Samples of one run. All ids are global, -1 stands for NULL; arrays are NumPy on the CPU and CuPy on the GPU.

    NextDoor's two output formats (section 4.1): ``steps`` has one array per step, ``samples`` has all vertices of a
    sample in one row.

    Attributes:
        graph, app: the graph and the application.
        roots: ids ``[S, R]``.
        steps: per step, ids ``[S, width]``; slot ``k * m + j`` is the ``j``-th vertex drawn for transit ``k``.
        shape: sizes of every step.
        parallelism: how the GPU was used; has no effect on the CPU, which samples one by one.
        device: ``"cpu"`` or ``"cuda"``.
        seed: key of the draws.
        first_sample: id of sample 0 in the draws.
        schedule: one dictionary per step with what the GPU did (kernels, index, bytes streamed); empty on the CPU.
        ready: an event behind the sampling (:class:`~gnnsample_lab.device.streams.Ready`). The arrays may be read on
            the streams of CuPy and torch that were current in the run; the properties and methods below also order the
            streams that are current when they are called; any other stream waits: ``result.ready.wait(stream)``.
        recorded: step, sample and ends of the edges that ``s.add_edge`` recorded, ``int64[n]`` each; None where the
            application calls it nowhere (:meth:`edges` gives those of a step).
    """

    graph: Any
    app: Any
    roots: Any
    steps: list[Any]
    shape: list[StepShape]
    parallelism: str
    device: str
    seed: int = 0
    first_sample: int = 0
    schedule: list[dict[str, Any]] = field(default_factory=list)
    ready: Any = streams.DONE
    recorded: tuple[Any, Any, Any, Any] | None = None

    @property
    def num_samples(self) -> int:
        return int(self.roots.shape[0])

    @property
    def num_steps(self) -> int:
        return len(self.steps)

    @property
    def samples(self) -> Any:
        """All vertices of each sample, roots first, ids ``[S, R + sum of widths]``, -1 where a step added none."""
        streams.order(self._samples)
        return self._samples

    @cached_property
    def _samples(self) -> Any:
        with self._made():
            return array_module(self.roots).concatenate([self.roots, *self.steps], axis=1)

    @property
    def lengths(self) -> Any:
        """Vertices of each sample that are not NULL, roots included, ``int64[S]``."""
        streams.order(self._lengths)
        return self._lengths

    @cached_property
    def _lengths(self) -> Any:
        xp = array_module(self.roots)
        with self._made():
            total = xp.zeros(self.num_samples, dtype=np.int64)
            for part in (self.roots, *self.steps):
                total += (part >= 0).sum(axis=1)
            return total

    def _made(self) -> AbstractContextManager[Any]:
        """A context for computing from the samples: orders work after them and leases the results' memory."""
        self.ready.order()
        return streams.results(is_cuda_array(self.roots))

    def edges(self, step: int) -> tuple[Any, Any, Any]:
        """What ``s.add_edge(u, v)`` recorded in ``step``: samples and both ends, ``int64[n]`` each, in this order.

        Every call of ``next`` counts, also one whose vertex ``unique`` draws again. An edge that several calls of a
        sample record stands as often.

        Args:
            step: 0 to ``num_steps - 1``.

        Raises:
            TypeError, ValueError: there is no such step, or the application records no edges.
        """
        step = links.step_of(self, step)
        if self.recorded is None:
            raise ValueError(f"{self.app.name} records no edges: its next calls no s.add_edge")
        streams.order(*self.recorded)
        steps, *rest = self.recorded
        here = steps == step
        with self._made():
            sample, u, v = (part[here] for part in rest)
        return sample, u, v

    @property
    def num_vertices(self) -> int:
        """Number of vertices that all steps have added, without NULL."""
        self.ready.order()
        return sum(int((step >= 0).sum()) for step in self.steps)

    def transits(self, step: int) -> Any:
        """Transits of ``step``, ``[S, t]``: the vertices that the step before added, as many as the step takes.

        Where ``num_transits`` asks for more than the step before added, there are no more, and ``t`` is their number.

        Of an application with a ``step_transits`` of its own, what its ``kept_transits(result, step, vertices)`` makes
        of those, as ``lab.apps.Layer`` has one.

        Args:
            step: 0 to ``num_steps - 1``.

        Raises:
            TypeError, ValueError: there is no such step, or the application has a ``step_transits`` of its own and no
                ``kept_transits``.
        """
        from gnnsample_lab.sampling.engine.language.app import SamplingApp

        step = links.step_of(self, step)
        own = type(self.app).step_transits is not SamplingApp.step_transits
        kept = getattr(self.app, "kept_transits", None)
        if own and kept is None:
            raise ValueError(
                f"{self.app.name} chooses its transits itself (step_transits); they are not kept"
            )
        self.ready.order()
        before = self.roots if step == 0 else self.steps[step - 1]
        vertices = before[:, : self.shape[step].transits]
        return kept(self, step, vertices) if own and kept is not None else vertices

    def visits(self, roots: bool = True) -> Any:
        """How often each vertex occurs in the samples, ``int64[N]``, including their roots unless ``roots`` is False.

        Args:
            roots: whether to count the samples' roots.

        Raises:
            TypeError: ``roots`` is not a bool.
        """
        with self._made():
            return votes.visits(self, roots)

    def top(self, k: int) -> Any:
        """The ``k`` vertices that each root's samples visit most, PinSAGE's neighbours; see :func:`.votes.top`.

        Args:
            k: 1 to 4096.

        Raises:
            TypeError, ValueError: ``k`` is not such a number, or samples have several roots.
        """
        with self._made():
            return votes.top(self, k)

    def adjacency(self, step: int, normalise: str | None = None) -> Any:
        """Edges between the transits of ``step`` and the vertices that it added.

        Args:
            step, normalise: see :func:`.links.adjacency`.

        Raises:
            TypeError, ValueError: as :func:`.links.adjacency`.
        """
        with self._made():
            return links.adjacency(self, step, normalise)

    def induced(self) -> Any:
        """The sub-graph that each sample's vertices induce; see :func:`.links.induced`."""
        with self._made():
            return links.induced(self)

    def to_cpu(self) -> AppResult:
        """The same samples as NumPy arrays."""
        if not is_cuda_array(self.roots):
            return self
        from dataclasses import replace

        self.ready.order()
        recorded = None
        if self.recorded is not None:
            streams.order(*self.recorded)
            recorded = tuple(part.get() for part in self.recorded)
        return replace(
            self,
            roots=self.roots.get(),
            steps=[s.get() for s in self.steps],
            ready=streams.DONE,
            recorded=recorded,
        )

    def canonical(self) -> dict[str, Any]:
        """Roots and steps on the host, for comparison; the samples need no sorting."""
        host = self.to_cpu()
        return {"roots": host.roots, "steps": host.steps}

    def digest(self) -> str:
        """SHA-256 of the samples as ``int64``; the same on every device and in every parallelism."""
        host, sha = self.to_cpu(), hashlib.sha256()
        for part in (host.roots, *host.steps):
            sha.update(str(part.shape).encode())
            sha.update(np.ascontiguousarray(part, dtype=np.int64).data)
        return sha.hexdigest()

    def __eq__(self, other: object) -> bool:
        """True exactly when both hold the same samples and edges, whatever device and parallelism drew them."""
        if not isinstance(other, AppResult):
            return NotImplemented
        if self.num_steps != other.num_steps or self.roots.shape != other.roots.shape:
            return False
        mine, others = self, other
        if is_cuda_array(self.roots) != is_cuda_array(other.roots):
            mine, others = self.to_cpu(), other.to_cpu()
        mine.ready.order()
        others.ready.order()
        if (mine.recorded is None) != (others.recorded is None):
            return False
        edges, other_edges = mine.recorded or (), others.recorded or ()
        streams.order(*edges, *other_edges)
        pairs = zip(
            [mine.roots, *mine.steps, *edges], [others.roots, *others.steps, *other_edges], strict=True
        )
        return all(a.shape == b.shape and bool((a == b).all()) for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        where = f"{self.parallelism} on {self.device}" if self.device == "cuda" else "sample by sample on cpu"
        return (
            f"AppResult({self.app.name} on {self.graph.title!r}: {self.num_samples:,} samples, {self.num_steps} steps, "
            f"{where})"
        )
