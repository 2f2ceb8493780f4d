"""The graph type: in-neighbour CSC plus node data, on the CPU or the GPU."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field, replace
from typing import Any

import numpy as np

from gnnsample_lab.checks import MAX_NODES, flag, ids_below, instance, integers, text, whole
from gnnsample_lab.device import runtime, streams
from gnnsample_lab.device.arrays import array_module, dense, to_host
from gnnsample_lab.device.host import free_host_bytes
from gnnsample_lab.graph import checks
from gnnsample_lab.graph.csc import build_csc, edge_order, rows_of, with_reverse_edges

_MANY_NODES = 2**24
"""From so many vertices on it is asked whether there is memory for them."""


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """A directed graph whose messages flow from source to destination, stored as in-neighbour lists.

    Vertex ids are global: ``0 .. num_nodes - 1``. Self-loops, parallel edges and isolated vertices are valid.
    Arrays are NumPy on the CPU (memory-mapped ones included) and CuPy on the GPU. Do not change what is in them once
    the graph has been used: copies on other devices, sums of weights and other things made of them are kept. For other
    arrays make another graph with :func:`dataclasses.replace`, for labels of fewer classes with ``num_classes=-1``.

    Attributes:
        indptr: int64[N+1]; the in-edges of vertex v lie at positions ``indptr[v]:indptr[v+1]``.
        indices: int32[E] (int64 from 2**31 vertices on); the source of each edge, sorted within a vertex.
        edge_weight: float32[E], finite and not negative, or None.
        feat: float32[N, F] or None; of other numbers as such, with a warning where whole ones are rounded. May stay
            in host memory while the graph is on the GPU.
        label: int64[N], -1 for none; int64[N, tasks] of 0 and 1 for multi-label data; or None.
        splits: name ("train", "valid", "test") -> int64 vertex ids, in the order given.
        num_classes: number of classes; found from ``label`` when not given, 0 without labels.
        name: what ``lab.load`` was asked for.
        is_synthetic: True for generated graphs; every figure title says so.
        edge_ids: int64[E], the index that each edge had where the graph came from (``edge_index`` of a PyG
            ``Data``), or None where nobody needs to know.
        version: of the generator of a twin; None for all other graphs.
        validate: False skips the checks that read every edge (arrays that were checked before).

    Raises:
        TypeError: a non-integer dtype where ids are expected, or a non-number where numbers are.
        ValueError: shapes that do not fit, a decreasing ``indptr``, edges out of range or unsorted, NaN,
            infinite or negative weights, arrays on different devices.
    """

    indptr: Any
    indices: Any
    edge_weight: Any = None
    feat: Any = None
    label: Any = None
    splits: Mapping[str, Any] = field(default_factory=dict)
    num_classes: int = -1
    name: str = "graph"
    is_synthetic: bool = False
    edge_ids: Any = None
    version: int | None = None
    validate: InitVar[bool] = True
    _known: dict[str, int] = field(init=False, default_factory=dict)
    """What has been computed of the topology."""
    _identity: object = field(init=False, repr=False, compare=False, default_factory=object)
    """One for a graph and its copies on other devices."""

    def __post_init__(self, validate: bool) -> None:
        validate = flag("validate", validate)
        text("name", self.name)
        self._set("is_synthetic", flag("is_synthetic", self.is_synthetic))
        indptr, indices = checks.topology(self.indptr, self.indices)
        num_nodes = len(indptr) - 1
        if validate:
            checks.adjacency(indptr, indices)
        self._set("indptr", dense(indptr))
        indices = dense(indices)
        self._set("indices", indices.astype(checks.id_dtype(num_nodes), copy=False))
        weight = self.edge_weight
        if weight is not None:
            if validate or getattr(weight, "dtype", None) != np.float32:
                weight = checks.weights(weight, len(indices))
            else:
                checks.one_per_edge(weight, len(indices), "edge_weight")
            self._set("edge_weight", dense(weight))
        if self.version is not None:
            self._set("version", whole("version", self.version, 1, 2**31 - 1))
        if self.edge_ids is not None:
            given = integers("edge_ids", self.edge_ids)
            if given.dtype == np.uint64 and given.size and int(given.max()) >= 1 << 63:
                raise ValueError(f"edge_ids must be below 2**63 (got {int(given.max())})")
            self._set("edge_ids", dense(given.astype(np.int64, copy=False)))
            if len(self.edge_ids) != len(indices):
                raise ValueError(
                    f"edge_ids must have shape ({len(indices)},) (got {tuple(self.edge_ids.shape)})"
                )
        if self.feat is not None:
            self._set("feat", checks.features(self.feat, num_nodes))
        if self.label is not None:
            self._set("label", checks.labels(self.label, num_nodes))
        self._set("splits", checks.split_ids(self.splits, num_nodes))
        self._set("num_classes", checks.class_count(self.num_classes, self.label))
        self._check_devices()

    def _set(self, attribute: str, value: Any) -> None:
        object.__setattr__(self, attribute, value)  # the dataclass is frozen for everyone else

    def _check_devices(self) -> None:
        parts = {"edge_weight": self.edge_weight, "label": self.label, "edge_ids": self.edge_ids}
        parts.update({f"splits[{k!r}]": v for k, v in self.splits.items()})
        if self.device == "cpu":
            parts["feat"] = self.feat
        for name, array in parts.items():
            if array is not None and checks.device_of(array) != self.device:
                raise ValueError(
                    f"{name} must be on the device of indptr, {self.device} (got {checks.device_of(array)})"
                )

    # ---- construction -------------------------------------------------------------------------------------

    @classmethod
    def from_edges(
        cls,
        src: Any,
        dst: Any,
        num_nodes: int | None = None,
        *,
        edge_weight: Any = None,
        feat: Any = None,
        label: Any = None,
        splits: Mapping[str, Any] | None = None,
        undirected: bool = False,
        keep_edge_ids: bool = False,
        name: str = "graph",
        is_synthetic: bool = False,
    ) -> Graph:
        """Graph of the edges ``src[i] -> dst[i]``.

        Args:
            src, dst: integer vertex ids (list, NumPy, CuPy or torch), one entry per edge.
            num_nodes: number of vertices; the largest id plus one when None.
            edge_weight: one per edge, or None.
            feat, label: node data, one row per vertex.
            splits: name -> vertex ids or boolean mask.
            undirected: add the reverse of every edge that is no self-loop, with the same weight.
            keep_edge_ids: keep ``edge_ids``, 8 bytes an edge; reverse edges count on behind the given ones.

        Raises:
            TypeError, ValueError: as :class:`Graph`; ids out of range name the position.
            MemoryError: more vertices than memory has room for, as where ids are not compacted.
        """
        undirected, keep_edge_ids = flag("undirected", undirected), flag("keep_edge_ids", keep_edge_ids)
        src, dst = integers("src", src), integers("dst", dst)
        if len(src) != len(dst):
            raise ValueError(f"src and dst must have one entry per edge each (got {len(src)} and {len(dst)})")
        if checks.device_of(src) != checks.device_of(dst):
            raise ValueError(
                f"src and dst must be on one device (got {checks.device_of(src)} and {checks.device_of(dst)})"
            )
        is_found = num_nodes is None
        if num_nodes is None:
            ids_below("src", src, MAX_NODES)
            ids_below("dst", dst, MAX_NODES)
            num_nodes = 1 + max(int(src.max()), int(dst.max())) if len(src) else 0
        num_nodes = whole("num_nodes", num_nodes, 0, MAX_NODES)
        ids_below("src", src, num_nodes)
        ids_below("dst", dst, num_nodes)
        _check_offsets_fit(num_nodes, is_found, checks.device_of(src))
        if edge_weight is not None:
            edge_weight = checks.weights(edge_weight, len(src))
            if checks.device_of(edge_weight) != checks.device_of(src):
                raise ValueError(
                    f"edge_weight must be on the device of src, {checks.device_of(src)} "
                    f"(got {checks.device_of(edge_weight)})"
                )
        if undirected:
            src, dst, edge_weight = with_reverse_edges(src, dst, edge_weight)
        edge_ids = edge_order(src, dst, num_nodes) if keep_edge_ids else None
        indptr, indices, edge_weight = build_csc(src, dst, num_nodes, edge_weight)
        return cls(
            indptr, indices, edge_weight, feat, label, {} if splits is None else splits,
            name=name, is_synthetic=is_synthetic, edge_ids=edge_ids, validate=False,
        )  # fmt: skip

    @classmethod
    def from_csc(cls, indptr: Any, indices: Any, **node_data: Any) -> Graph:
        """Graph of in-neighbour lists in any order.

        Args:
            indptr: integers ``[N + 1]``; the in-edges of vertex v lie at positions ``indptr[v]:indptr[v+1]``.
            indices: integers ``[E]``, the source of each edge.
            node_data: ``edge_weight``, ``feat`` and further arguments of :meth:`from_edges`.

        Raises:
            TypeError, ValueError: as :meth:`from_edges`; a decreasing ``indptr`` names the vertex.
        """
        indptr, indices = checks.topology(indptr, indices)
        if bool((indptr[1:] < indptr[:-1]).any()):
            checks.adjacency(indptr, indices)  # raises, naming the vertex
        ids_below("indices", indices, len(indptr) - 1)
        return cls.from_edges(indices, rows_of(indptr), len(indptr) - 1, **node_data)

    @classmethod
    def from_networkx(
        cls, graph: Any, *, weight: str | None = None, feat: str | None = None, label: str | None = None,
        name: str | None = None,
    ) -> Graph:  # fmt: skip
        """Graph of a NetworkX graph.

        Args:
            graph, weight, feat, label, name: see :func:`gnnsample_lab.graph.sources.interop.from_networkx`.

        Raises:
            TypeError, ValueError: not a NetworkX graph, or an edge or node lacks a named attribute.
        """
        from gnnsample_lab.graph.sources.interop import from_networkx

        return from_networkx(graph, weight=weight, feat=feat, label=label, name=name)

    @classmethod
    def from_pyg(cls, data: Any, *, name: str = "pyg") -> Graph:
        """Graph of a PyTorch Geometric ``Data``.

        Args:
            data, name: see :func:`gnnsample_lab.graph.sources.interop.from_pyg`.

        Raises:
            TypeError, ValueError: heterogeneous data, no ``edge_index``, or contents that are no valid graph.
        """
        from gnnsample_lab.graph.sources.interop import from_pyg

        return from_pyg(data, name=name)

    def to_pyg(self) -> Any:
        """PyTorch Geometric ``Data`` on the CPU; see :func:`gnnsample_lab.graph.sources.interop.to_pyg`."""
        from gnnsample_lab.graph.sources.interop import to_pyg

        return to_pyg(self)

    # ---- sizes and degrees --------------------------------------------------------------------------------

    @property
    def num_nodes(self) -> int:
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Directed edges; an undirected edge counts twice."""
        return len(self.indices)

    @property
    def num_features(self) -> int:
        return 0 if self.feat is None else int(self.feat.shape[1])

    @property
    def device(self) -> str:
        """``"cpu"`` or ``"cuda"``: where ``indptr`` and ``indices`` lie."""
        return checks.device_of(self.indptr)

    @property
    def title(self) -> str:
        """Name for figure titles; a synthetic graph says that it is one."""
        return f"{self.name} (synthetic)" if self.is_synthetic else self.name

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, features included."""
        return self._nbytes(features=True)

    def _nbytes(self, features: bool) -> int:
        arrays = [self.indptr, self.indices, self.edge_weight, self.edge_ids, self.label]
        arrays += [*self.splits.values(), self.feat if features else None]
        return sum(int(a.nbytes) for a in arrays if a is not None)

    def in_degrees(self) -> Any:
        """int64[N]: incoming edges of each vertex, the neighbours that sampling draws from."""
        return self.indptr[1:] - self.indptr[:-1]

    def out_degrees(self) -> Any:
        """int64[N]: outgoing edges of each vertex, how often it can be reached."""
        xp = array_module(self.indices)
        degrees = xp.zeros(self.num_nodes, dtype=np.int64)
        chunk = 1 << 26  # bincount widens its input to int64
        for start in range(0, self.num_edges, chunk):
            degrees += xp.bincount(self.indices[start : start + chunk], minlength=self.num_nodes)
        return degrees

    @property
    def max_in_degree(self) -> int:
        if "max_in_degree" not in self._known:
            self._known["max_in_degree"] = int(self.in_degrees().max()) if self.num_nodes else 0
        return self._known["max_in_degree"]

    def edges(self) -> tuple[Any, Any]:
        """``(src, dst)`` of every edge in canonical order (by destination, then source); ids global."""
        return self.indices, rows_of(self.indptr).astype(self.indices.dtype)

    # ---- placement and identity ---------------------------------------------------------------------------

    def to(self, device: str, *, features: bool = True) -> Graph:
        """The same graph on ``"cuda"`` or ``"cpu"``; itself when it already lies there.

        Args:
            device: ``"cuda"``, ``"cpu"`` or ``"auto"``.
            features: False leaves ``feat`` in host memory, for features larger than the GPU; a copy on the CPU goes
                without features that lie on the GPU.

        Raises:
            RuntimeError: no usable GPU.
            MemoryError: larger than the free GPU memory; the message gives both sizes.
        """
        target, features = runtime.resolve_device(device), flag("features", features)
        feat_stays = self.feat is None or not features or checks.device_of(self.feat) == target
        kept = self.feat
        if target == "cpu" and not features and kept is not None and checks.device_of(kept) == "cuda":
            kept = None
        if target == self.device and feat_stays:
            return self
        move: Callable[[Any], Any] = to_host
        if target == "cuda":
            import cupy

            self._check_fits(features, *runtime.gpu_memory())
            move = cupy.asarray

        def maybe(array: Any) -> Any:
            return None if array is None else move(array)

        with streams.results(target == "cuda"):
            moved = replace(
                self,
                indptr=move(self.indptr), indices=move(self.indices), edge_weight=maybe(self.edge_weight),
                feat=kept if feat_stays else maybe(self.feat), label=maybe(self.label),
                splits={k: move(v) for k, v in self.splits.items()}, edge_ids=maybe(self.edge_ids), validate=False,
            )  # fmt: skip
        moved._known.update(self._known)
        moved._set("_identity", self._identity)
        return moved

    def _check_fits(self, features: bool, free_bytes: int, total_bytes: int) -> None:
        need = self._nbytes(features)
        if need <= free_bytes:
            return
        topology = self._nbytes(False)
        hint = ""
        if features and topology <= free_bytes:
            hint = (
                f"; to('cuda', features=False) leaves its features in host memory and needs {_gib(topology)}"
            )
        raise MemoryError(
            f"graph {self.name!r} needs {_gib(need)} on the GPU, which has {_gib(free_bytes)} free of "
            f"{_gib(total_bytes)}{hint}"
        )

    def digest(self) -> str:
        """SHA-256 over topology, weights, labels, splits and features; the same on every device."""
        sha = hashlib.sha256()
        named = {
            "indptr": self.indptr, "indices": self.indices, "edge_weight": self.edge_weight,
            "label": self.label, "feat": self.feat,
        }  # fmt: skip
        named.update({f"split {k}": self.splits[k] for k in sorted(self.splits)})
        for name, array in named.items():
            if array is None:
                continue
            sha.update(f"{name} {array.dtype.str} {tuple(array.shape)};".encode())
            flat = array.reshape(-1)
            for start in range(0, flat.size, 1 << 24):
                part = flat[start : start + (1 << 24)]
                sha.update(checks.host_bytes(part))
        return sha.hexdigest()

    def __repr__(self) -> str:
        extras = [f"{self.num_features} features"] if self.feat is not None else []
        extras += [f"{self.num_classes} classes"] if self.label is not None else []
        extras += ["weighted"] if self.edge_weight is not None else []
        extras += [f"{k} {len(v):,}" for k, v in self.splits.items()]
        text = f"{self.num_nodes:,} nodes, {self.num_edges:,} directed edges, on {self.device}"
        return f"Graph({self.title!r}: {', '.join([text, *extras])})"


def check_graph(value: Any, name: str = "graph") -> Graph:
    """``value``, a :class:`Graph`; anything else is a TypeError that names the argument."""
    graph: Graph = instance(name, value, Graph, "a gnnsample_lab.Graph")
    return graph


def _check_offsets_fit(num_nodes: int, is_found: bool, device: str) -> None:
    """MemoryError where there is no room for ``indptr`` and the degrees that it is made of.

    Args:
        is_found: ``num_nodes`` is the largest id plus one, which nobody gave.
    """
    if num_nodes < _MANY_NODES:
        return
    need = 2 * 8 * (num_nodes + 1)
    free = runtime.gpu_memory()[0] if device == "cuda" else free_host_bytes()
    if need > free:
        source = ", the largest id of src and dst plus one" if is_found else ""
        raise MemoryError(
            f"num_nodes must fit memory (got {num_nodes:,}{source}, which needs {_gib(need)} where {_gib(free)} are "
            "free): compact the ids of src and dst to 0 .. N-1, as numpy.unique(..., return_inverse=True) does, "
            "and pass num_nodes=N"
        )


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.2f} GiB" if num_bytes >= 2**27 else f"{num_bytes / 2**20:.2f} MiB"
