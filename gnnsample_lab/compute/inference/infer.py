"""``lab.infer``: a model on all vertices of a graph, layer by layer, each vertex with all its neighbours."""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
import math
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnnsample_lab.checks import array as checked_array
from gnnsample_lab.checks import flag, instance, real, shown
from gnnsample_lab.device import runtime, streams
from gnnsample_lab.device.arrays import is_memory_mapped
from gnnsample_lab.device.host import free_host_bytes
from gnnsample_lab.features.caching.host import feature_table
from gnnsample_lab.graph.graph import Graph, check_graph
from gnnsample_lab.minibatch.export import tensor
from gnnsample_lab.minibatch.types import Block
from gnnsample_lab.readable import size

from .messages import Columns, columns_of, messages
from .plan import Plan, Widths, plan
from .sums import TURN_BYTES, Early, Scale, Sums, Topology, begun, folded, per_head, whole
from .tables import Rows, host_table, put

_STEPS = ("message", "root", "update")
"""Methods of a layer that runs in parts (``compute.layers.Layer``)."""
_EARLY = 0.6
"""Share of the rows after which sums over their edges begin: half of them and 0.7 were slower or level."""
_topologies: weakref.WeakKeyDictionary[Graph, dict[str, Topology]] = weakref.WeakKeyDictionary()
"""Views of graphs that lie on the device of their inferences, and what is made of them once."""
_SMALL_INDPTR, _SMALL_INDICES, _SMALL_WEIGHT = [0, 1, 1, 3], [1, 0, 1], [0.5, 2.0, 1.0]
"""A graph of three vertices on which layers are tried: one without edges, and one with two."""
_MOST_WEIGHT = 2.0**32
"""Of an edge in sums: more than visits that a float32 counts, and far from its end."""
_known_widths: weakref.WeakKeyDictionary[Any, dict[Any, Widths]] = weakref.WeakKeyDictionary()
"""Of layers, by what they depend on."""


def infer(
    model: Any,
    graph: Graph,
    *,
    features: Any = None,
    device: str = "auto",
    budget_gb: float | None = None,
    out: Any = None,
    progress: bool = False,
) -> Any:
    """Logits of every vertex from all its neighbours: what the model gives for the whole graph as one mini-batch.

    One layer is done for all vertices before the next begins, so that no vertex is computed twice; sampled inference
    computes a vertex once for every mini-batch that reaches it. Runs in evaluation mode and without gradients, and
    leaves the model as it was. If a layer maps rows to fewer columns, it maps them before they are aggregated.

    Rows in host memory are read in order and in chunks, each once a layer, and mapped to messages while the next come.
    On a GPU that has room for it, sums over the edges out of the first rows begin before the last are there.
    If not even the messages of all vertices fit the device, sums grow there chunk by chunk: the edges of a vertex are
    sorted by source, so those from one chunk are a run. If not even the sums fit, vertices are done in ranges, and rows
    are read once per range. A layer of attention whose sums grow needs the scores of all vertices first; for the first
    layer these take one more reading of the features, later layers get them with the results of the layer before.

    Args:
        model: of :func:`~gnnsample_lab.make_model`, or any module with ``layers``, and ``between(x)`` for what happens
            between two of them; where it has a ``forward(blocks, x)``, that must do no more, which each call tries on
            six vertices; a ``forward`` of fewer or more arguments is not tried. Layers have the steps of
            :class:`~gnnsample_lab.compute.layers.Layer`; others, those with hooks, and classes that inherit the steps
            below a ``forward`` of their own are called as ``layer(block, x)`` with the whole graph as one block, if its
            tables fit; so are layers of one's own that give by their steps something else than when they are called,
            which is tried, too, and layers whose linear maps have hooks or adapters. ``between`` must make each row of
            that row alone. PinSAGE, and other layers that are ``weighted``, weigh neighbours by the graph's edge
            weights, or equally where it has none, in place of its random walks' visits.
        graph: on either device; its topology has to fit the device.
        features: ``[N, F]``, ``float32`` or ``float16``, default ``graph.feat``; in GPU memory, in host memory
            (page-locked or not), or memory-mapped.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``; a model that lies elsewhere is copied there.
        budget_gb: 10^9 bytes of device memory for tables, sums and buffers, and for the topology if it has to be
            copied there; default nine tenths of what is free. On a CPU it stands for a device's memory: tables beyond
            it are read in chunks as a GPU would. By default only memory-mapped features larger than half of the free
            memory are.
        out: where to write the logits: an array or a tensor of floats, ``[N, num_classes]``, in memory of its own, not
            the features', with a place for every element; memory-mapped is fine.
        progress: show a bar over the layers' vertices.

    Returns:
        Logits ``[N, num_classes]`` in the type of the parameters, under ``torch.autocast`` too: ``out`` where it
        is given; on a CPU a NumPy array; on a GPU a tensor, in GPU memory, or in host memory where the budget does not
        hold it.

    Raises:
        TypeError: a model without ``layers`` and ``between``, arguments of a wrong kind.
        ValueError: a model whose ``forward`` does more than its layers, or fails when it is tried, or whose ``between``
            mixes rows, a graph without features, features or ``out`` of a wrong shape, an ``out`` that may share memory
            with the features, or whose elements may share theirs, more than 2**31 - 2 vertices.
        MemoryError: ``budget_gb``, or the device, is too small; the message names what does not fit.
    """
    return Inference(
        model, graph, features=features, device=device, budget_gb=budget_gb, out=out, progress=progress
    ).run()


def _alone(layer: Any) -> Any:
    """A model of one layer."""
    import torch

    class Alone(torch.nn.Module):
        layers = (layer,)

        def between(self, x: Any) -> Any:
            return x

    return Alone()


@dataclass
class LayerRun:
    """What one layer of an inference did.

    Attributes:
        plan: how it used the device's memory; None for a layer that was called with the whole graph as one block.
        widths: columns of its tables.
        ranges: how often rows were read.
        read_bytes, written_bytes: of rows, copied from and to host memory. ``score_bytes``: those of ``read_bytes``
            that were read for attention scores alone.
        us: microseconds, on a GPU between two events; None unless asked for.
    """

    plan: Plan | None
    widths: Widths
    ranges: int = 1
    read_bytes: int = 0
    score_bytes: int = 0
    written_bytes: int = 0
    us: float | None = None


class Inference:
    """One inference; see :func:`infer`. ``layers`` tells after :meth:`run` what each layer did.

    Args:
        timed: take the time of each layer, for which the host waits after it.
        stream: keep no rows that lie in host memory on the device, even if all of them would fit.
    """

    def __init__(
        self, model: Any, graph: Graph, *, features: Any = None, device: str = "auto", budget_gb: float | None = None,
        out: Any = None, progress: bool = False, timed: bool = False, stream: bool = False,
    ) -> None:  # fmt: skip
        self.model, self.graph = check_model(model), check_graph(graph)
        self.progress, self.timed, self.stream = flag("progress", progress), timed, stream
        budget = None if budget_gb is None else real("budget_gb", budget_gb, above=0) * 1e9
        self.where = "on the device"
        if budget is not None:
            self.where = f"within budget_gb={budget / 1e9:g} ({size(budget)})"
        self.device = runtime.resolve_device(device)
        if self.graph.num_nodes >= 2**31 - 1:
            raise ValueError(
                f"graph must have fewer than 2**31 - 1 vertices (got {self.graph.num_nodes}): local ids have 32 bits"
            )
        given = self.graph.feat if features is None else features
        if given is None:
            raise ValueError(f"graph {self.graph.name!r} has no features: give features")
        self.table = feature_table(given, "features")
        if len(self.table) != self.graph.num_nodes:
            raise ValueError(
                f"features must have one row per vertex, {self.graph.num_nodes} (got {len(self.table)})"
            )
        self.budget, self.out, self.layers = budget, out, []  # type: ignore[var-annotated]
        self._trusts_steps = False

    # ---- the device's memory ------------------------------------------------------------------------------------

    def _begin(self, dtype: Any) -> None:
        """The topology and the features where the device finds them, and what is free there for the rest."""
        import torch

        graph = self.graph
        streams.order(graph.indptr, graph.indices, graph.edge_weight, self.table)
        need = graph.indptr.nbytes + graph.indices.nbytes
        weighted = graph.edge_weight is not None and any(_is_weighted(layer) for layer in self.steps)
        need += weighted * graph.num_edges * dtype.itemsize
        moves = self.device == "cuda" and graph.device == "cpu"
        if self.device == "cpu":
            free = self._free_on_cpu()
        else:
            most = torch.cuda.mem_get_info()[0]
            held = torch.cuda.memory_stats_as_nested_dict()  # the flat one takes ten times as long
            reserved, used = (held[kind]["all"]["current"] for kind in ("reserved_bytes", "allocated_bytes"))
            free = min(0.9 * (most + reserved - used), math.inf if self.budget is None else self.budget)
        if moves:
            if need > free:
                raise MemoryError(
                    f"the topology of graph {graph.name!r} needs {size(need)}, and {size(free)} are free {self.where}"
                )
            free -= need
        self.free = free

        def there(array: Any) -> Any:
            return (_view(array) if isinstance(array, np.ndarray) else tensor(array)).to(self.device)

        # What had to be copied is not kept: it would take memory of the device that nobody knows of.
        kept = {} if moves else _topologies.setdefault(graph, {})
        if self.device not in kept:
            kept[self.device] = Topology(there(graph.indptr), there(graph.indices))
        weight = there(graph.edge_weight).to(dtype) if weighted else None
        if weighted and all(_averages(layer) for layer in self.steps if _is_weighted(layer)):
            weight = within_range(weight, kept[self.device].indptr)
        self.topology = replace(kept[self.device], weight=weight)
        self.rows = Rows(self._in_place(self.table, dtype), self.device)
        self._features = self.rows.table
        self.held = 0.0
        """Bytes on the device that the rows of the current layer take of ``free``."""
        self.scores: Any = None

    def _free_on_cpu(self) -> float:
        """Numba and torch take arrays as they lie, so only memory-mapped ones can be too large."""
        if self.budget is not None:
            return self.budget
        free = free_host_bytes() / 2
        return free if is_memory_mapped(self.table) and self.table.nbytes > free else math.inf

    def _in_place(self, table: Any, dtype: Any) -> Any:
        """``table`` as a tensor where the device can work on it as it lies, else in host memory."""
        if not isinstance(table, np.ndarray):
            return tensor(table) if self.device == "cuda" else self._in_place(table.get(), dtype)
        usable = self.device == "cpu" and math.isinf(self.free) and str(table.dtype) == _name(dtype)
        return _view(table) if usable else table

    # ---- layers ---------------------------------------------------------------------------------------------------

    def run(self) -> Any:
        """The logits; see :func:`infer`."""
        import torch

        with (
            streams.call(self.device == "cuda"),
            torch.no_grad(),
            torch.autocast(self.device, enabled=False),  # kernels read tables of the parameters' type
            _as_evaluated(self.model, self.device) as model,
        ):
            parameter = next(model.parameters(), None)
            dtype = torch.float32 if parameter is None else parameter.dtype
            if dtype not in (torch.float32, torch.float64):
                raise TypeError(f"model must have parameters of float32 or float64 (got {dtype})")
            self._prepare(model, dtype)
            self._check_between()
            self._check_forward(model)
            return self._computed()

    def _prepare(self, model: Any, dtype: Any) -> None:
        self.dtype, self.between, self.steps = dtype, model.between, list(model.layers)
        self.relu_between = getattr(model.between, "is_relu", False) is True
        self.layers = []
        self._begin(dtype)
        self._measure()

    def _computed(self) -> Any:
        with self._bar() as bar:
            for index in range(len(self.steps)):
                self._layer(index, bar)
        return self._result()

    @contextlib.contextmanager
    def _bar(self) -> Iterator[Any]:
        from tqdm.auto import tqdm

        total = self.graph.num_nodes * len(self.steps)
        with tqdm(
            total=total, desc="inference", unit=" vertices", unit_scale=True, disable=not self.progress
        ) as bar:
            yield bar

    def _layer(self, index: int, bar: Any) -> None:
        import torch

        layer, last, n = self.steps[index], index == len(self.steps) - 1, self.graph.num_nodes
        widths, in_parts, what = self.widths[index], self.in_parts[index], f"layer {index}"
        following = None if last else self.steps[index + 1]
        # Scores for the next layer are made from the results of this one.
        free = self.free - self.held
        free -= 0 if last else 2 * n * self.widths[index + 1].heads * self.dtype.itemsize
        if in_parts:
            there = self.rows.on_device and self.rows.table.dtype == self.dtype
            widths, chosen = self._planned(layer, widths, free, there, what)
        else:
            chosen = self._whole_plan(widths, free, what)
        run = LayerRun(chosen if in_parts else None, widths)
        self.layers.append(run)
        keeps = chosen.keeps and not (last and self.out is not None)
        if last and self.out is not None:
            target = self._given_out()
        elif not keeps:
            target = host_table((n, widths.result), _name(self.dtype), self.device)
        elif in_parts and chosen.slice_rows >= n > 0:
            target = None  # what is computed for all vertices at once is the table
        else:
            target = torch.empty((n, widths.result), dtype=self.dtype, device=self.device)
        scores = (
            _Scores(following, n)
            if following is not None and not keeps and hasattr(following, "scores")
            else None
        )

        def write(begin: int, rows: Any, after_between: bool = False) -> None:
            nonlocal target
            if not last and not after_between:
                rows = self.between(rows)
            if target is None:
                target = rows.to(self.dtype).contiguous()
                read = self.rows.table
                if (
                    self.rows.on_device
                    and target.untyped_storage().data_ptr() == read.untyped_storage().data_ptr()
                ):
                    target = target.clone()
            else:
                put(target, begin, rows)
            run.written_bytes += (
                len(rows) * rows.shape[1] * rows.element_size() * isinstance(target, np.ndarray)
            )
            if scores is not None:
                scores.add(begin, rows)
            bar.update(len(rows))

        clock = _Clock(self.device) if self.timed else None
        if not in_parts:
            self._call(layer, chosen, write)
        elif chosen.resident:
            self._resident(layer, chosen, write, widths, last)
        else:
            self._streamed(layer, chosen, write, run, last)
        if isinstance(target, np.ndarray) and self.device == "cuda":
            torch.cuda.current_stream().synchronize()
        run.us = None if clock is None else clock.us()
        run.read_bytes = self.rows.copied_bytes
        self.scores = None if scores is None else scores.tables
        self.held = n * widths.result * self.dtype.itemsize if keeps else 0.0
        self.rows = Rows(target, self.device)

    def _planned(
        self, layer: Any, widths: Widths, free: float, there: bool, what: str
    ) -> tuple[Widths, Plan]:
        """How a layer in parts uses the device: heads weigh rows themselves where that is less, and all of it fits."""
        n, stream = self.graph.num_nodes, self.stream and not self.rows.on_device
        if _attends_rows(layer):
            rows = self._row_widths(widths)
            with contextlib.suppress(MemoryError):
                chosen = plan(n, rows, free - self._side_bytes(rows), there, what, stream)
                if chosen.resident:
                    return rows, chosen
        left = free - self._side_bytes(widths)
        # Only a copy from the host is worth hiding.
        overlaps = self.topology.on_gpu and not self.rows.on_device
        return widths, plan(n, widths, left, there, what, stream, self.where, overlaps)

    def _side_bytes(self, widths: Widths) -> int:
        """Of the sums of long rows' pieces and of what finds the vertices' turns, on a GPU."""
        if not self.topology.on_gpu:
            return 0
        floats = max(widths.sent, widths.summed) + 2 * widths.heads
        turns = TURN_BYTES * self.graph.num_nodes * self.topology.has_turns(widths.sent * widths.itemsize)
        # Pieces of sums that begin early, and of those that follow; and what an earlier layer's have left.
        pieces = 2 * self.topology.pieces.count * floats * widths.itemsize
        return pieces + turns + self.topology.cut_bytes

    def _row_widths(self, widths: Widths) -> Widths:
        """Of a layer whose heads weigh rows themselves."""
        columns = columns_of(widths.read, 0, self.device, self.dtype.itemsize)
        return replace(
            widths, sent=columns.width, columns=columns, summed=widths.heads * widths.read,
            sent_apart=columns.is_padded,
        )  # fmt: skip

    def _measure(self) -> None:
        """Widths of all tables, so that what does not fit is said before anything is computed."""
        self.widths, width, itemsize = [], self.rows.width, self.rows.itemsize  # type: ignore[var-annotated]
        self.in_parts: list[bool] = []
        for index, layer in enumerate(self.steps):
            in_parts = _has_steps(layer) and (self._trusts_steps or self._steps_agree(layer, width))
            self.in_parts.append(in_parts)
            try:
                found = (self._widths if in_parts else self._widths_of_call)(layer, width, itemsize)
            except RuntimeError as error:
                raise ValueError(
                    f"features must suit the model: layer {index} fails on rows of {width} columns ({error})"
                ) from None
            self.widths.append(found)
            width, itemsize = found.result, self.dtype.itemsize
        self._check_out(width)

    def _steps_agree(self, layer: Any, width: int) -> bool:
        """Whether a layer of somebody's own gives by its steps, slice by slice, what a call gives for six vertices."""
        import torch

        if _is_ours(layer) or not isinstance(layer, torch.nn.Module):
            return True
        if type(layer).forward is torch.nn.Module.forward and "forward" not in vars(layer):
            return True
        x = self._small_rows(width)
        try:
            wanted = layer(self._small_block(), x.clone())
        except Exception:  # what is wrong is told where the layer's columns are found
            return True
        weight = None if self.graph.edge_weight is None else _SMALL_WEIGHT
        three = Graph(_SMALL_INDPTR, _SMALL_INDICES, weight)
        try:
            found = [self._by_steps(layer, three, half) for half in x.split(3)]
        except Exception:
            return False
        return torch.is_tensor(wanted) and all(
            part.shape == half.shape and _is_near(part, half)
            for part, half in zip(found, wanted.split(3), strict=True)
        )

    def _by_steps(self, layer: Any, graph: Graph, x: Any) -> Any:
        import torch

        one = Inference(_alone(layer), graph, features=x.float(), device=self.device)
        one._trusts_steps = True
        one._prepare(one.model, self.dtype)
        return torch.as_tensor(one._computed()).to(self.device)

    def _small_rows(self, width: int) -> Any:
        """Six rows of two sizes, since a bound of values shows on large ones alone."""
        import torch

        x = torch.arange(6 * width, device=self.device).float().sin().to(self.dtype).reshape(6, -1)
        x[3:] *= 100
        return x

    def _check_between(self) -> None:
        """That rows between two layers do not depend on other rows: they are made slice by slice.

        Raises:
            ValueError: they do.
        """
        if len(self.steps) < 2 or getattr(self.between, "is_by_row", False) is True:
            return
        x = self._small_rows(self.widths[0].result)
        together = self.between(x.clone())
        parts = [self.between(half.clone()) for half in x.split(3)]
        if not all(map(_is_near, parts, together.split(3))):
            raise ValueError(
                "between of model must make each row of that row alone, since inference makes them slice by slice (got "
                f"{type(self.model).__name__}, whose rows depend on others: a norm over vertices?)"
            )

    def _check_forward(self, model: Any) -> None:
        """That the model's ``forward`` is its layers with ``between``, tried on six vertices.

        It is tried at every inference, since what it does may depend on weights and attributes, which change.

        Raises:
            ValueError: it does more, as a residual or a norm of the input, which layer by layer nobody would do; or it
                fails.
        """
        import torch

        # A compiled model would be compiled anew for so few vertices.
        plain = getattr(model, "_orig_mod", model)
        forward = getattr(plain.forward, "__func__", plain.forward)
        if forward is torch.nn.Module.forward or _is_stack(plain, forward):
            return
        block = self._small_block()
        x = self._small_rows(self.rows.width)
        if not _takes(plain.forward, [block], x):
            return
        name = type(plain).__name__
        try:
            wanted = plain([block] * len(self.steps), x.clone())
            found = self.steps[0](block, x.clone())
            for layer in self.steps[1:]:
                found = layer(block, self.between(found))
        except Exception as error:
            raise ValueError(
                "model must have a forward(blocks, x) that is its layers with between(x) between two of them "
                f"(got {name}, which fails on six vertices: {type(error).__name__}: {error})"
            ) from error
        # Either half by its own size, or what is done to small rows would not count beside the large ones.
        if not (
            torch.is_tensor(wanted)
            and wanted.shape == found.shape
            and all(map(_is_near, wanted.split(3), found.split(3)))
        ):
            raise ValueError(
                f"forward of model does more than its layers with between(x) between two of them, which is all that "
                f"inference layer by layer computes (got {name}): move the rest into layers or between"
            )

    def _small_block(self) -> Block:
        """A graph of three vertices, twice, as one block."""
        import torch

        # Tensors of their own, since kernels count on how the first element is aligned.
        like: Any = {"dtype": torch.int32, "device": self.device}
        # Vertices that there are, since a layer may keep something for each.
        ids = torch.arange(6, **like) % max(1, self.graph.num_nodes)
        indices, indptr = (
            torch.tensor(_SMALL_INDICES, **like),
            torch.tensor(_SMALL_INDPTR, device=self.device),
        )
        indices, indptr = torch.cat([indices, indices + 3]), torch.cat([indptr, indptr[1:] + indptr[-1]])
        weight = None
        if self.graph.edge_weight is not None:
            weight = torch.tensor(_SMALL_WEIGHT * 2, dtype=self.dtype, device=self.device)
        return Block(ids, ids, indptr, indices, None, weight)

    def _widths(self, layer: Any, width: int, itemsize: int) -> Widths:
        """Columns of a layer's tables, by trying its steps on a single row, once."""
        if not _is_ours(layer):  # whose columns may depend on anything
            return self._tried(layer, width, itemsize)
        widths = tuple(p.shape for p in layer.parameters())
        key = (width, itemsize, self.dtype, self.device, _narrows(layer), *widths)
        known = _known_widths.setdefault(layer, {})
        if key not in known:
            known[key] = self._tried(layer, width, itemsize)
        return known[key]

    def _tried(self, layer: Any, width: int, itemsize: int) -> Widths:
        import torch

        x = torch.zeros((1, width), dtype=self.dtype, device=self.device)
        mapped = _narrows(layer)
        sent = layer.message(x, mapped)
        root = layer.root(x, sent)
        result = layer.update(root, torch.zeros_like(sent), torch.ones_like(sent[:, :1]), mapped)
        heads = layer.scores(sent)[0].shape[1] if hasattr(layer, "scores") else 0
        columns = columns_of(sent.shape[1], heads, self.device, self.dtype.itemsize)
        return Widths(
            width, columns.width, root.shape[1], result.shape[1], heads, sent is not x or columns.is_padded,
            self.dtype.itemsize, itemsize, columns,
        )  # fmt: skip

    def _resident(self, layer: Any, chosen: Plan, write: Any, widths: Widths, last: bool) -> None:
        """Rows and messages of all vertices are on the device."""
        n, mapped, mean = self.graph.num_nodes, _narrows(layer), layer.reduce == "mean"
        columns = widths.columns
        assert columns is not None
        x: Any = None
        root: Any = None
        early: Early | None = None
        if chosen.early:
            message, root, early = self._overlapped(layer, chosen, widths, columns)
            scale = Scale(layer.weighted)
        elif chosen.passing:
            message, root, scale = self._passed(layer, chosen, widths, columns)
        else:
            x = self._load(chosen)
            attends = bool(widths.summed)
            message = columns.pad(x) if attends else x
            if widths.sent_apart and not attends:
                message = self._messages(layer, x, chosen.slice_rows, columns)
            scale = self._scale(layer, x, message, chosen.slice_rows, widths)
        in_two = _updates_in_two(layer)
        for begin, end in _slices(0, n, chosen.slice_rows):
            if root is not None:
                own = root[begin:end]
            else:
                own = layer.root(x[begin:end], columns.cut(message[begin:end]))
            if widths.summed:
                write(
                    begin,
                    layer.finish_rows(per_head(self.topology, begin, end, message, columns, scale), own),
                )
                continue
            fold, after_between = self._fold(layer, own, last) if in_two else (None, False)
            rows = whole(self.topology, begin, end, message, columns, scale, mean, fold, early)
            if in_two:
                write(begin, layer.finish(rows, own, mapped), after_between)
            else:
                lengths = self.topology.lengths(begin, end, rows, layer.weighted)
                write(begin, layer.update(own, rows, lengths, mapped))

    def _passed(self, layer: Any, chosen: Plan, widths: Widths, columns: Columns) -> tuple[Any, Any, Scale]:
        """Messages of all vertices, what vertices keep of themselves, and scales, of chunks of rows as they come."""
        import torch

        n, like = self.graph.num_nodes, {"dtype": self.dtype, "device": self.device}
        message, root = torch.empty((n, widths.sent), **like), torch.empty((n, widths.root), **like)
        scores = _Scores(layer, n) if hasattr(layer, "scores") else None
        for begin, _, x in self._passes(layer, chosen, widths, columns, message, root):
            if scores is not None:
                scores.add(begin, x)
        if scores is None:
            return message, root, Scale(layer.weighted)
        source, target = scores.tables or (message.new_empty((0, widths.heads)),) * 2
        return message, root, Scale(False, source, target, layer.slope)

    def _passes(
        self, layer: Any, chosen: Plan, widths: Widths, columns: Columns, message: Any, root: Any
    ) -> Iterator[tuple[int, int, Any]]:
        """Chunks of rows, after ``message`` and ``root`` have got what is made of them: ``(begin, end, x)``."""
        for begin, end, chunk in self.rows.chunks(chosen.chunk_rows):
            x = chunk.to(self.dtype)
            part = columns.pad(x) if widths.summed else messages(layer, x, _narrows(layer), columns)
            message[begin:end] = part
            root[begin:end] = layer.root(x, columns.cut(part))
            yield begin, end, x

    def _overlapped(
        self, layer: Any, chosen: Plan, widths: Widths, columns: Columns
    ) -> tuple[Any, Any, Early]:
        """As :meth:`_passed`, with sums over the edges out of the first rows, which are made while the others come.

        Sums have a stream of their own: on the one that turns chunks into messages they would hold up the next chunks.
        """
        import torch

        n, like = self.graph.num_nodes, {"dtype": self.dtype, "device": self.device}
        message, root = torch.empty((n, widths.sent), **like), torch.empty((n, widths.root), **like)
        sums, early = torch.empty((n, widths.sent), **like), None
        cut = chosen.chunk_rows * math.ceil(_EARLY * n / chosen.chunk_rows)
        # What is made once a graph is made on this stream, as everything else that outlives the call.
        self.topology.halves(cut)
        self.topology.turns(0, n, message)
        main = torch.cuda.current_stream()
        with streams.borrowed_torch_stream() as summing:
            try:
                for _, end, _ in self._passes(layer, chosen, widths, columns, message, root):
                    if end == cut:
                        summing.wait_stream(main)
                        with torch.cuda.stream(summing):
                            early = begun(self.topology, cut, message, columns, Scale(layer.weighted), sums)
            finally:
                main.wait_stream(summing)
        assert early is not None
        return message, root, early

    def _fold(self, layer: Any, root: Any, last: bool) -> tuple[Any, bool]:
        """What happens to sums as they are written, and whether that is what happens between layers, too."""
        fold = layer.fold(root, _narrows(layer))
        if fold is None:
            return None, False
        done = fold.whole and self.relu_between and not last
        return replace(fold, relu=fold.relu or done), done

    def _messages(self, layer: Any, x: Any, rows: int, columns: Columns) -> Any:
        """Of all vertices, slice by slice, so that what the map needs beside its result stays small."""
        if rows >= len(x):
            return messages(layer, x, _narrows(layer), columns)
        message = None
        for begin, end in _slices(0, len(x), rows):
            part = messages(layer, x[begin:end], _narrows(layer), columns)
            if message is None:
                message = part.new_empty((len(x), part.shape[1]))
            message[begin:end] = part
        return message

    def _streamed(self, layer: Any, chosen: Plan, write: Any, run: LayerRun, last: bool) -> None:
        """Rows come in chunks, and the sums of a range of vertices grow."""
        import torch

        n, mapped, mean = self.graph.num_nodes, _narrows(layer), layer.reduce == "mean"
        like = {"dtype": self.dtype, "device": self.device}
        scale, in_two, columns = (
            self._streamed_scale(layer, chosen, run),
            _updates_in_two(layer),
            run.widths.columns,
        )
        assert columns is not None
        total = torch.empty((chosen.rows, run.widths.sent), **like)
        root = torch.empty((chosen.rows, run.widths.root), **like)
        run.ranges = 0
        for begin, end in _slices(0, n, chosen.rows):
            run.ranges += 1
            chunks = self.rows.chunks(chosen.chunk_rows)
            ahead = next(chunks)  # copies run while the host gets the sums ready
            sums = Sums(self.topology, begin, end, total[: end - begin].zero_(), columns, scale)
            for first, behind, chunk in itertools.chain([ahead], chunks):
                x = chunk.to(self.dtype)
                message = messages(layer, x, mapped, columns)
                sums.add(first, behind, message)
                low, high = max(begin, first), min(end, behind)
                if low < high:
                    own = slice(low - first, high - first)
                    root[low - begin : high - begin] = layer.root(x[own], columns.cut(message[own]))
            for low, high in _slices(begin, end, chosen.slice_rows):
                part = slice(low - begin, high - begin)
                fold, after_between = self._fold(layer, root[part], last) if in_two else (None, False)
                rows = folded(self.topology, low, high, columns.cut(total[part]), mean, fold)
                if in_two:
                    write(low, layer.finish(rows, root[part], mapped), after_between)
                else:
                    lengths = self.topology.lengths(low, high, total, layer.weighted)
                    write(low, layer.update(root[part], rows, lengths, mapped))

    def _load(self, chosen: Plan) -> Any:
        """All rows that the layer reads, on the device and of the model's type."""
        import torch

        if self.rows.on_device and self.rows.table.dtype == self.dtype:
            return self.rows.table.contiguous()
        x = torch.empty((self.graph.num_nodes, self.rows.width), dtype=self.dtype, device=self.device)
        for begin, end, chunk in self.rows.chunks(chosen.chunk_rows):
            x[begin:end] = chunk
        return x

    # ---- attention ------------------------------------------------------------------------------------------------

    def _scale(self, layer: Any, x: Any, message: Any, rows: int, widths: Widths) -> Scale:
        """What edges are multiplied by, from the rows or the messages of all vertices."""
        if not hasattr(layer, "scores"):
            return Scale(layer.weighted)
        made = _Scores(layer, self.graph.num_nodes)
        for begin, end in _slices(0, len(message), rows):
            if hasattr(layer, "row_scores"):
                made.add(begin, x[begin:end])
            else:
                assert widths.columns is not None
                made.put(begin, *layer.scores(widths.columns.cut(message[begin:end])))
        source, target = made.tables or (message.new_empty((0, widths.heads)),) * 2
        return Scale(False, source, target, layer.slope)

    def _streamed_scale(self, layer: Any, chosen: Plan, run: LayerRun) -> Scale:
        if not hasattr(layer, "scores"):
            return Scale(layer.weighted)
        if self.scores is None:
            made = _Scores(layer, self.graph.num_nodes)
            for begin, _, chunk in self.rows.chunks(chosen.chunk_rows):
                made.add(begin, chunk.to(self.dtype))
            self.scores, run.score_bytes = made.tables, self.rows.copied_bytes
        source, target = self.scores
        return Scale(False, source, target, layer.slope)

    # ---- layers without steps -------------------------------------------------------------------------------------

    def block(self, weight: Any = None) -> Block:
        """The whole graph as one block on the device; ``weight``: in place of the graph's weights, or None."""
        import torch

        ids = torch.arange(self.graph.num_nodes, dtype=torch.int32, device=self.device)
        if weight is None and self.graph.edge_weight is not None:
            weight = tensor(self.graph.edge_weight).to(self.device)
        return Block(ids, ids, self.topology.indptr, self.topology.indices, None, weight)

    def _widths_of_call(self, layer: Any, width: int, itemsize: int) -> Widths:
        """Columns that a layer makes, by calling it with a single vertex without edges."""
        import torch

        one = torch.zeros(1, dtype=torch.int32, device=self.device)
        none = torch.zeros(2, dtype=torch.int64, device=self.device)
        x = torch.zeros((1, width), dtype=self.dtype, device=self.device)
        result = layer(Block(one, one, none, one[:0], None), x)
        if getattr(result, "ndim", 0) != 2 or len(result) != 1:
            raise TypeError(
                f"layers of model must return a tensor [destinations, columns] (got {shown(result)})"
            )
        return Widths(width, width, 0, result.shape[1], 0, False, self.dtype.itemsize, itemsize)

    def _whole_plan(self, widths: Widths, free: float, what: str) -> Plan:
        n = self.graph.num_nodes
        in_place = self.rows.on_device and self.rows.table is not self._features
        loaded = 0 if in_place else n * widths.read * widths.itemsize
        need = loaded + 2 * n * widths.result * widths.itemsize
        if need > free:
            raise MemoryError(
                f"{what} has no {', '.join(_STEPS)}, so all its rows must fit the device: they need "
                f"{size(need)} ({size(max(0, free))} are free {self.where} for them)"
            )
        chunk = min(64 << 20, free - need) // (8 * widths.read * widths.itemsize)
        return Plan(True, True, n, n, max(1, int(chunk)))

    def _call(self, layer: Any, chosen: Plan, write: Any) -> None:
        x = self._load(chosen)
        # A layer of a user's own may write to what it reads, or hand it on to what does; features are the caller's.
        block = self.block(self.topology.weight if _averages(layer) else None)
        write(0, layer(block, x.clone() if x is self._features else x))

    # ---- the result -----------------------------------------------------------------------------------------------

    def _check_out(self, classes: int) -> None:
        if self.out is None:
            return
        found, shape = checked_array("out", self.out), (self.graph.num_nodes, classes)
        if found is not self.out and not hasattr(self.out, "detach"):
            raise TypeError(f"out must be an array or a tensor (got {shown(self.out)})")
        if found.dtype.kind != "f":
            raise TypeError(f"out must hold floating-point numbers (got dtype {found.dtype})")
        if tuple(found.shape) != shape:
            raise ValueError(f"out must have shape {shape} (got {tuple(found.shape)})")
        if isinstance(found, np.ndarray):
            if not found.flags.writeable:
                raise ValueError("out must be writeable (got a read-only array)")
        elif self.device == "cpu":
            raise ValueError("out must be in host memory for device 'cpu' (got one on the GPU)")
        given = self._given_out()
        if overlaps(given):
            raise ValueError(
                f"out must have memory of its own for every element (got strides of {_strides(given)} bytes)"
            )
        if shares_memory(given, self.table):
            raise ValueError(
                "out must not share memory with the features, which are read until the end (got their memory)"
            )

    def _given_out(self) -> Any:
        """``out`` as a NumPy array that shares its memory, or as a tensor on the GPU."""
        found = self.out.detach() if hasattr(self.out, "detach") else self.out
        if hasattr(found, "is_cuda"):
            return found if found.is_cuda else found.numpy()
        return found if isinstance(found, np.ndarray) else tensor(found)

    def _result(self) -> Any:
        import torch

        if self.out is not None:
            return self.out
        table = self.rows.table
        if self.device == "cpu":
            return table if isinstance(table, np.ndarray) else table.numpy()
        return torch.from_numpy(table) if isinstance(table, np.ndarray) else table


class _Scores:
    """Attention scores of all vertices for ``layer``, made slice by slice: ``tables``, two of ``[N, heads]``."""

    def __init__(self, layer: Any, num_nodes: int) -> None:
        self.layer, self.num_nodes = layer, num_nodes
        self.tables: Any = None

    def add(self, begin: int, x: Any) -> None:
        """Of the rows ``x`` that the layer reads."""
        if hasattr(self.layer, "row_scores"):
            self.put(begin, *self.layer.row_scores(x))
        else:
            self.put(begin, *self.layer.scores(self.layer.message(x, _narrows(self.layer))))

    def put(self, begin: int, *parts: Any) -> None:
        if self.tables is None:
            self.tables = tuple(part.new_empty((self.num_nodes, part.shape[1])) for part in parts)
        for table, part in zip(self.tables, parts):
            table[begin : begin + len(part)] = part


class _Clock:
    """Microseconds since it was made: between two events on a GPU."""

    def __init__(self, device: str) -> None:
        self.events: Any = None
        if device == "cuda":
            import torch

            self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            self.events[0].record()
        self.began = time.perf_counter()

    def us(self) -> float:
        if self.events is None:
            return (time.perf_counter() - self.began) * 1e6
        self.events[1].record()
        self.events[1].synchronize()
        return float(self.events[0].elapsed_time(self.events[1])) * 1e3


def check_model(model: Any) -> Any:
    """``model``, a torch module with layers and what happens between them; anything else is a TypeError."""
    import torch

    instance("model", model, torch.nn.Module, "a torch module, as make_model makes")
    layers: Any = getattr(model, "layers", None)
    is_list = isinstance(layers, (torch.nn.ModuleList, torch.nn.Sequential, list, tuple))
    if not is_list or len(layers) == 0 or not callable(getattr(model, "between", None)):
        raise TypeError(
            "model must have layers, a list of modules layer(block, x), and between(x), what happens to rows between "
            f"two of them, as the models of make_model have (got {type(model).__name__})"
        )
    return model


@contextlib.contextmanager
def _as_evaluated(model: Any, device: str) -> Iterator[Any]:
    """The model on ``device`` and in evaluation mode: itself, put back afterwards, or a copy if it lies elsewhere."""
    held = {tensor.device.type for tensor in (*model.parameters(), *model.buffers())}
    if held - {device}:
        yield copy.deepcopy(model).to(device).eval()
        return
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield model
    finally:
        for module, training in modes:
            module.training = training


def shares_memory(a: Any, b: Any) -> bool:
    """Whether two arrays or tensors may share memory: from its first to its last element each takes all between."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.may_share_memory(a, b)
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return False  # the other one is on the GPU
    (first, behind), (begin, end) = _span(tensor(a)), _span(tensor(b))
    return first < end and begin < behind


def overlaps(x: Any) -> bool:
    """Whether elements of an array or a tensor may share memory: along each dimension, the one of the smallest stride
    first, a step has to pass what the dimensions before it take."""
    taken = x.dtype.itemsize
    for stride, n in sorted(
        (abs(stride), n) for stride, n in zip(_strides(x), x.shape, strict=True) if n > 1
    ):
        if stride < taken:
            return 0 not in x.shape
        taken += stride * (n - 1)
    return False


def _strides(x: Any) -> tuple[int, ...]:
    """Of an array or a tensor, in bytes."""
    if isinstance(x, np.ndarray):
        return x.strides
    return tuple(stride * x.dtype.itemsize for stride in x.stride())


def _span(x: Any) -> tuple[int, int]:
    """Addresses of a tensor's first element and behind its last one."""
    if not x.numel():
        return 0, 0
    last = sum((n - 1) * stride for n, stride in zip(x.shape, x.stride(), strict=True))
    return x.data_ptr(), x.data_ptr() + (last + 1) * x.element_size()


def _view(array: np.ndarray) -> Any:
    """A tensor over the array's memory. Torch warns of read-only arrays; nothing writes to this one."""
    import warnings

    import torch

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable.*")
        return torch.from_numpy(np.ascontiguousarray(array))


def _name(dtype: Any) -> str:
    """NumPy's name of a type of torch."""
    return str(dtype).removeprefix("torch.")


def _is_stack(model: Any, forward: Any) -> bool:
    """Whether a model's ``forward`` is that of this package's models, without hooks that could do more."""
    from gnnsample_lab.compute.stack import BlockModel

    return forward is BlockModel.forward and not _has_hooks(model)


def _has_hooks(module: Any) -> bool:
    """Of its own, or of all modules."""
    from torch.nn.modules import module as all_of

    return any(
        getattr(module, f"_forward_{hooks}", None) or getattr(all_of, f"_global_forward_{hooks}", None)
        for hooks in ("hooks", "pre_hooks")
    )


def _is_near(found: Any, wanted: Any) -> bool:
    """Whether two tensors are equal to a thousandth of the largest finite number."""
    import torch

    largest = float(wanted.abs().nan_to_num(posinf=0).max())
    return torch.allclose(found, wanted, rtol=1e-3, atol=1e-3 * largest, equal_nan=True)


def _takes(forward: Any, *given: Any) -> bool:
    """Whether ``forward`` can be called with as many arguments."""
    try:
        inspect.signature(forward).bind(*given)
    except TypeError:
        return False
    return True


def _has_steps(layer: Any) -> bool:
    """Whether a layer can run in parts: it has the steps, and its ``forward`` does no more than they do.

    A class that has a ``forward`` of its own and inherits the steps does something else, and so do hooks.
    """
    if not all(callable(getattr(layer, step, None)) for step in _STEPS) or not hasattr(layer, "reduce"):
        return False
    if _has_hooks(layer) or not getattr(layer, "is_plain", True):
        return False
    return _place(layer, "forward") >= min(_place(layer, step) for step in _STEPS)


def _is_ours(layer: Any) -> bool:
    """Whether a layer is one of this package's, as it was made: then its steps are what its ``forward`` does."""
    from gnnsample_lab.compute.layers import GATConv, GCNConv, GINConv, PinSAGEConv, SAGEConv

    changed = {*_STEPS, "fold", "finish", "message_weight", "forward", "reduce", "weighted"} & {*vars(layer)}
    return type(layer) in (GATConv, GCNConv, GINConv, PinSAGEConv, SAGEConv) and not changed


def _place(layer: Any, name: str) -> int:
    """How far up an attribute is defined: -1 on the object itself, 0 by its class, and so on."""
    if name in getattr(layer, "__dict__", {}):
        return -1
    kinds = type(layer).__mro__
    return next((place for place, kind in enumerate(kinds) if name in vars(kind)), len(kinds))


def _updates_in_two(layer: Any) -> bool:
    """Whether a layer's update is that of this package's layers: sums folded, and what is left to do."""
    from gnnsample_lab.compute.layers import Layer

    return getattr(type(layer), "update", None) is Layer.update


def _narrows(layer: Any) -> bool:
    return bool(layer.narrows)


def _attends_rows(layer: Any) -> bool:
    """Whether heads better weigh rows than messages."""
    return getattr(layer, "attends_rows", False) is True


def _is_weighted(layer: Any) -> bool:
    return bool(getattr(layer, "weighted", False))


def _averages(layer: Any) -> bool:
    """Whether a layer takes the mean of messages by weights, as PinSAGE does: the weights' scale does not count."""
    return _is_ours(layer) and _is_weighted(layer)


def within_range(weight: Any, indptr: Any) -> Any:
    """``weight`` of edges, where a vertex has larger ones than :data:`_MOST_WEIGHT` times a power of two, a tensor.

    A float32 of visits or of weights may be so large that their sum, or a product with a message, is none. Shares of
    neighbours stay the same, bit for bit: only what is nothing beside the vertex' largest weight loses digits.
    """
    import torch

    if len(weight) == 0 or weight.max() <= _MOST_WEIGHT:
        return weight
    largest = torch.segment_reduce(weight, "max", offsets=indptr, initial=0)
    scale = torch.exp2(torch.log2(_MOST_WEIGHT / largest).floor().clamp(max=0))
    return weight * scale.repeat_interleave(indptr[1:] - indptr[:-1])


def _slices(begin: int, end: int, rows: int) -> Iterator[tuple[int, int]]:
    return ((low, min(low + rows, end)) for low in range(begin, end, max(1, rows)))
