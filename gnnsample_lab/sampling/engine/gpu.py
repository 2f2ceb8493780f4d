"""Run an application on the GPU: the steps' kernels in order, the arrays that they read and write.

Steps that add one vertex per sample run in one kernel over many steps (``walk``). Other steps run one by one: transits,
then ``next`` for all pairs in the way of the chosen parallelism, then redraws if slots must be distinct. The host waits
at the end, and for samples that end by themselves once per chunk of steps.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnsample_lab.device import runtime, streams

from .grouping import ranges
from .language import link
from .language.accessors import USES_WEIGHTS
from .language.app import SamplingApp, weights_of
from .language.compile import Operator
from .outputs import Outputs
from .plan import CLEAR, AppPlan, Timed, streamed, weights
from .results.edges import Recorded
from .shape import Shape
from .steps import fused, moving, published, transit

if TYPE_CHECKING:
    from .streaming.run import StreamedGraph

ENDLESS_STEPS = 32
"""Steps in the first chunk of samples that end by themselves; after a chunk the host asks whether any go on."""
_THREADS, _BLOCKS_PER_SM = 256, 32
"""Threads of a block, and the most blocks per multiprocessor, of kernels that loop."""
_SMALL = 2**26
"""Most slots of a step for which several steps of an endless application are launched before the host asks."""
_READS_HISTORY = frozenset({"lab_prev_vertex", "lab_prev_count"})


class GpuEngine:
    """One run of an application on the GPU. The modules of the engine read and set its attributes.

    Args:
        graph: on the GPU; with ``graph_bytes`` anywhere.
        operator: of :func:`~.language.compile.compile_operator`.
        shape: sizes of the steps.
        roots: CuPy, integers ``[S, R]``, -1 for none.
        parallelism, index, graph_bytes: as :func:`~.run.run_app` has them.
        kernel_provider: ``(source, macros) -> cupy.RawModule`` to take kernels from in place of linking ours with the
            operator (for comparison with hand-written functions).
        timed: record how long index and sampling take, at the cost of events between the kernels.
        recorded: gets what ``s.add_edge`` records.
        ready: :class:`~gnnsample_lab.device.streams.Ready` that the memory of the outputs is leased to; by default a
            new one.

    Attributes:
        graph: what kernels read, ``indptr`` and ``indices`` as CuPy arrays.
        plan: :class:`~.plan.AppPlan`, what kernels are told; ``plan.argument()`` is what they take.
        transits: ids ``[S, t]`` of the present step.
        steps: :class:`~.outputs.Outputs` so far.
        addresses, widths: of the roots and all outputs; status: ``uint64[1]``, the first fault.
        schedule: per step, what was done.
        prefix, weight, max_weight: integer weights, ``uint64[E + 1]``, ``uint32[E]``, ``uint32[N]``, or None.
        streamed: :class:`~.streaming.StreamedGraph`, or None; scratch: arrays that parts keep from step to step.
    """

    def __init__(
        self, graph: Any, app: SamplingApp, operator: Operator, shape: Shape, roots: Any, seed: int = 0,
        first_sample: int = 0, parallelism: str = "transit", index: str = "auto", graph_bytes: int | None = None,
        kernel_provider: Any = None, timed: bool = False, ready: Any = None, recorded: Recorded | None = None,
    ) -> None:  # fmt: skip
        import cupy

        self.app, self.operator, self.shape = app, operator, shape
        streams.order(graph.indptr, graph.indices, roots)
        ready = streams.Ready() if ready is None else ready
        self.parallelism, self.index, self.timed = parallelism, index, timed
        self._provider = kernel_provider
        self._kernels: dict[tuple[Any, ...], Any] = {}
        self.id_dtype = graph.indices.dtype
        self.num_samples, self.num_roots = map(int, roots.shape)
        self.first_sample = first_sample
        self.plan = AppPlan(graph.num_nodes, self.num_samples, self.num_roots, seed, first_sample)
        self.graph = graph
        edge_weight = weights_of(app, graph) if operator.uses & USES_WEIGHTS else None
        self.weighted = edge_weight is not None
        self.streamed: StreamedGraph | None = None
        self.prefix: Any = None
        self.weight: Any = None
        self.max_weight: Any = None
        if graph_bytes is not None:
            as_published = parallelism == "transit" and index == "published"
            held = self.streamed = self.graph = streamed(
                graph, operator, edge_weight, graph_bytes, as_published
            )
            self.prefix, self.weight, self.max_weight = held.prefix, held.weight, held.max_weight
        elif self.weighted:
            self.prefix, self.weight, self.max_weight = weights(self, edge_weight)
        self.plan.read_graph(self.graph, self.prefix, self.weight, self.max_weight)
        # A copy: the result keeps them, and the caller may write into theirs.
        self.roots = streams.leased(cupy.array(roots, dtype=self.id_dtype, order="C"), ready)
        own = self.roots.copy() if "lab_root_replace" in operator.uses else self.roots
        self.status = cupy.empty(1, np.uint64)
        self.status.data.memset_async(0xFF, 8)
        self._tables = [cupy.asarray(table) for table in operator.tables]
        self._kept: list[Any] = [own]
        self._sizes = None
        if "lab_size" in operator.uses:
            self._sizes = (self.roots >= 0).sum(axis=1).astype(np.uint32)
        self.recorded = recorded
        if "lab_add_edge" in operator.uses:
            self.recorded = recorded or Recorded()
            self._kept += self.recorded.begin(cupy, self.num_samples, np.uint32)
            self.plan.record_edges(*self._kept[-2:])
        self.plan.grow_samples(own, self._sizes, self.status)
        self.plan.read_tables(self._tables)
        self.scratch: dict[str, Any] = {}
        self.steps = Outputs(self.num_samples, self.id_dtype, ready)
        self.schedule: list[dict[str, Any]] = []
        self.transits = self.roots
        self._step_number = 0
        if not shape.endless and shape.bound:
            shape[shape.bound - 1]  # asks the application for the sizes of all steps now
        self.addresses, self.widths = [self.roots.data.ptr], [self.num_roots]
        self._own_transits = operator.transits_source is not None
        self._reads_history = self._own_transits or bool(operator.uses & _READS_HISTORY)
        self._events: list[Timed] = []
        self._walkers = fused.Walkers()
        self._walk = published.Walk()

    @cached_property
    def scratch_bytes(self) -> int:
        """How much memory a part may take for a while."""
        return runtime.scratch_bytes()

    # ---- what kernels take --------------------------------------------------------------------------------------

    @property
    def out(self) -> Any:
        """Output of the present step, ids ``[S, width]``."""
        return self.steps[self._step_number]

    def macros(self, chosen: dict[str, int | str] | None = None) -> dict[str, int | str]:
        """``chosen`` and the macros of ``context.cuh`` that this run sets."""
        id_type = "int" if self.id_dtype.itemsize == 4 else "long"
        own = {"ID_T": id_type, "WEIGHTED": int(self.weighted), **link.operator_macros(self.operator)}
        return {**own, **(chosen or {})}

    def raw_kernel(self, source: str, name: str, macros: dict[str, int | str] | None = None) -> Any:
        """CuPy's kernel object for :meth:`kernel`, whose attributes (dynamic shared memory) can be set."""
        key = (source, name, *sorted((macros or {}).items()))
        if key not in self._kernels:
            chosen = self.macros(macros)
            provider = self._provider or (lambda source, chosen: link.load(self.operator, source, chosen))
            self._kernels[key] = provider(source, chosen).get_function(name)
        return self._kernels[key]

    def kernel(self, source: str, name: str, macros: dict[str, int | str] | None = None) -> Any:
        """Kernel ``name`` of file ``source`` with the operator linked in; launched with half of CuPy's overhead."""
        return self.raw_kernel(source, name, macros).kernel

    def grid(self, threads: int) -> tuple[int]:
        """Blocks for ``threads`` threads of a kernel that loops."""
        return (max(1, min(-(-threads // _THREADS), runtime.num_sms() * _BLOCKS_PER_SM)),)

    # ---- the run ------------------------------------------------------------------------------------------------

    def run(self) -> Outputs:
        """All steps; returns their outputs, ids ``[S, width]`` each.

        Raises:
            SamplingAppError: the application failed in a sample.
            RuntimeError: it does not end.
        """
        shape = self.shape
        if not shape.endless or self.num_samples == 0:
            self._advance(0 if shape.endless else shape.bound)
            self._check(int(self.status.get()[0]))
            return self._done()
        # A collective step waits for the host anyway; walks go on in longer and longer chunks while memory is small.
        count = most = 1
        if not self.operator.collective:
            count, most = ENDLESS_STEPS, max(ENDLESS_STEPS, 4 * _SMALL // self.num_samples)
        ended = False
        while not ended and len(self.steps) < shape.bound:
            ended = self._advance_endless(min(count, shape.bound - len(self.steps)))
            count = min(2 * count, most)
        if not ended and shape.bound_is_error and shape.bound:
            raise RuntimeError(
                f"{self.app.name} did not end within {shape.bound} steps; max_steps sets how many an application of "
                "infinitely many may take"
            )
        return self._done()

    def _done(self) -> Outputs:
        for timed in self._events:
            timed.close()
        self._events.clear()
        return self.steps

    def _check(self, status: int) -> None:
        if status != CLEAR:
            raise self.operator.error(status, self.graph.num_nodes, self.first_sample)

    def _reserve(self, count: int) -> None:
        """Make room for the output of ``count`` more steps, one allocation, and tell kernels where it is."""
        import cupy

        widths = [s.width for s in self.shape.span(len(self.steps), count)]
        self.addresses += self.steps.reserve(widths)
        self.widths += widths
        if self._reads_history:
            words = cupy.asarray(np.array([*self.addresses, *self.widths], dtype=np.int64))
            self._kept.append(words)
            self.plan.read_history(words)

    def _advance(self, count: int) -> None:
        """Run ``count`` more steps."""
        step = len(self.steps)
        self._reserve(count)
        while step < len(self.steps):
            grouped = self._groups_walks()
            length = fused.length(self, step, len(self.steps)) if grouped or self._fuses() else 0
            if length > 1 and grouped and self._walk.can(self, step, length):
                self._walk = published.Walk()
                self._walk.advance(self, step, length)
                step += length
            elif length > 1 and not grouped:
                self.begin_step(step)
                if moving.serves(self, step, length):
                    moving.launch(self, length)
                else:
                    fused.launch(self, step, length)
                step += length
            else:
                self._step(step)
                step += 1

    def _advance_endless(self, count: int) -> bool:
        """Run up to ``count`` more steps, then ask once; True when no sample goes on."""
        import cupy

        first = len(self.steps)
        if self._groups_walks() and self._walkers.rows is None and self._walk.can(self, first, count):
            self._reserve(count)
            all_ended, taken, status, few = self._walk.advance_endless(self, first, count)
            self._check(status)
            self._drop(first + taken)
            self._walkers.rows = few
            return all_ended
        if (self._fuses() or self._walkers.rows is not None) and self._walkers.can(self, first, count):
            self._reserve(count)
            self.begin_step(first)
            going, taken, status = self._walkers.advance(self, first, count)
            self._check(status)
            self._drop(first + taken)
            return going == 0
        done = 0
        live = cupy.zeros(count, np.uint32)
        while done < count:  # no further than what the first of them may have grown to
            following = self.shape.ahead(first + done)
            if done and (following is None or self.num_samples * following.width > _SMALL):
                break
            self._reserve(1)
            self._step(first + done, live[done:])
            done += 1
        began = live[:done].get()
        self._check(int(self.status.get()[0]))
        ended = np.flatnonzero(began == 0)
        if ended.size:
            self._drop(first + int(ended[0]))
        return bool(ended.size)

    def _drop(self, count: int) -> None:
        """Forget the steps from ``count`` on."""
        self.steps.drop(count)
        del self.schedule[count:], self.addresses[count + 1 :], self.widths[count + 1 :]

    def begin_step(self, step: int) -> None:
        """The next launches are of step ``step``."""
        self._step_number = step
        self.plan.begin_step(step, self.shape[step], self.addresses[step + 1])

    def _fuses(self) -> bool:
        """Whether steps of one vertex per sample go into one kernel."""
        if self.parallelism != "sample" and not self._unshared(self.num_samples, 1):
            return False
        return self.streamed is None or not self.streamed.stages(self.num_samples, 1)

    def _groups_walks(self) -> bool:
        """Whether walks are grouped by transit in every step, as NextDoor published it."""
        if self.parallelism != "transit" or self.index != "published" or self.num_samples == 0:
            return False
        return self.streamed is None or not self.streamed.stages(self.num_samples, 1)

    def _unshared(self, pairs: int, size: int) -> bool:
        """Whether a transit-parallel step leaves pairs ungrouped, because grouping would not pay."""
        return self.parallelism == "transit" and self.index == "auto" and not ranges.pays(self, pairs, size)

    def _step(self, step: int, live: Any = None) -> None:
        """One step by itself; ``live`` (``uint32``) is set to 1 where any sample has a transit."""
        shape = self.shape[step]
        self.begin_step(step)
        if self.num_samples == 0:
            self.schedule.append({"kernel": None, "index": None})
            return
        self._choose_transits(step, live)
        record = self._draw(step, self.num_samples * shape.transits, shape.size)
        if shape.unique and not self.operator.collective:
            from .steps import unique

            with self.timing(record, "unique_us"):
                unique.redraw(self, step)
        if "lab_size" in self.operator.uses:
            kernel = self.kernel("steps/individual.cu", "sizes", self._slots())
            kernel(
                self.grid(self.num_samples * 32), (_THREADS,), (self.plan.argument(), np.int64(shape.width))
            )
        self.schedule.append(record)

    def _draw(self, step: int, pairs: int, size: int) -> dict[str, Any]:
        """``next`` for all pairs of the step; what was done."""
        record: dict[str, Any] = {"kernel": "sample", "index": None}
        if self.operator.collective:
            from .steps import collective

            with self.timing(record, "sample_us"):
                record.update({"kernel": "collective"}, **collective.step(self, step))
            return record
        if self.streamed is not None and self.streamed.stages(pairs, size):
            with self.timing(record, "sample_us"):
                record.update({"kernel": "streamed"}, **self.streamed.run_step(self, step))
            return record
        if self.parallelism != "sample" and not self._unshared(pairs, size):
            return transit.launch(self, step)
        kernel = self.kernel("steps/individual.cu", "sample", self._slots())
        with self.timing(record, "sample_us"):
            kernel(self.grid(pairs * -(-size // 4)), (_THREADS,), (self.plan.argument(),))
        return record

    def _slots(self) -> dict[str, int | str]:
        return {"SLOTS": 1 if self.shape[self._step_number].size == 1 else 4}

    def _choose_transits(self, step: int, live: Any) -> None:
        import cupy

        shape = self.shape[step]
        before = self.roots if step == 0 else self.steps[step - 1]
        if not self._own_transits and shape.transits == before.shape[1] and live is None:
            self.transits = before
            self.plan.read_transits(before)
            return
        self.transits = cupy.empty((self.num_samples, shape.transits), self.id_dtype)
        self.plan.read_transits(self.transits)
        flag = np.uint64(0 if live is None else live.data.ptr)
        kernel = self.kernel("steps/individual.cu", "transits", self._slots())
        args = (self.plan.argument(), before, np.int64(before.shape[1]), flag)
        kernel(self.grid(self.transits.size), (_THREADS,), args)

    def timing(self, record: dict[str, Any], name: str) -> Timed:
        """Time what is launched inside, into ``record[name]`` (``index_us``, ``sample_us``), where the run is timed."""
        return Timed(self._events if self.timed else None, record, name)


def run(
    graph: Any, app: SamplingApp, operator: Operator, shape: Shape, roots: Any, seed: int, first_sample: int, *,
    parallelism: str, index: str, graph_bytes: int | None, ready: Any = None, recorded: Recorded | None = None,
) -> tuple[Any, list[Any], list[dict[str, Any]]]:  # fmt: skip
    """Run ``app`` on the GPU; arguments as :class:`GpuEngine` and :func:`~.run.run_app` have them.

    Returns:
        Roots ``[S, R]``, per step ids ``[S, width]``, both CuPy in the graph's id type, and the schedule.

    Raises:
        SamplingAppError: a function does not compile, or failed in a sample.
        RuntimeError: a compiler is missing, or an application of infinitely many steps does not end.
    """
    engine = GpuEngine(
        graph,
        app,
        operator,
        shape,
        roots,
        seed,
        first_sample,
        parallelism,
        index,
        graph_bytes,
        ready=ready,
        recorded=recorded,
    )
    steps = engine.run()
    transit.settle(engine.schedule)
    return engine.roots, list(steps), engine.schedule
