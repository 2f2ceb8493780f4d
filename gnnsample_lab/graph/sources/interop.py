"""Graphs from NetworkX and from and to PyTorch Geometric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gnnsample_lab.checks import array, ids, shown, text
from gnnsample_lab.graph import checks

if TYPE_CHECKING:
    from gnnsample_lab.graph.graph import Graph

_MASKS = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}


def from_networkx(
    graph: Any, *, weight: str | None = None, feat: str | None = None, label: str | None = None,
    name: str | None = None,
) -> Graph:  # fmt: skip
    """Graph of a NetworkX graph; vertex i is the i-th of ``graph.nodes``.

    An undirected NetworkX graph gives both directions of each edge (a self-loop once); a multigraph keeps its
    parallel edges.

    Args:
        graph: ``networkx.Graph``, ``DiGraph`` or a multigraph of either.
        weight: name of an edge attribute to take as weight; every edge must have it.
        feat, label: names of node attributes; every node must have them.
        name: defaults to the NetworkX graph's own name.

    Raises:
        TypeError: not a NetworkX graph, or an attribute that is no number, such as the text "2.5".
        ValueError: an edge or node lacks a named attribute, or has one of another length than the others.
    """
    from gnnsample_lab.graph.graph import Graph

    if isinstance(graph, type) or not (hasattr(graph, "is_directed") and hasattr(graph, "is_multigraph")):
        raise TypeError(f"graph must be a NetworkX graph (got {shown(graph)})")
    for argument, given in (("weight", weight), ("feat", feat), ("label", label), ("name", name)):
        if given is not None:
            text(argument, given)
    nodes = list(graph.nodes)
    index = {node: i for i, node in enumerate(nodes)}
    pairs = list(graph.edges(data=True))
    src = np.fromiter((index[u] for u, _, _ in pairs), dtype=np.int64, count=len(pairs))
    dst = np.fromiter((index[v] for _, v, _ in pairs), dtype=np.int64, count=len(pairs))
    edge_weight = None
    if weight is not None:
        missing = next(((u, v) for u, v, data in pairs if weight not in data), None)
        if missing is not None:
            raise ValueError(f"weight names an attribute that edge {missing} lacks (got {weight!r})")
        edge_weight = _numbers(
            [data[weight] for _, _, data in pairs], "weight", [(u, v) for u, v, _ in pairs]
        )

    def column(attribute: str | None, argument: str) -> np.ndarray | None:
        if attribute is None or not nodes:
            return None
        lacking = next((node for node in nodes if attribute not in graph.nodes[node]), None)
        if lacking is not None:
            raise ValueError(f"{argument} names an attribute that node {lacking!r} lacks (got {attribute!r})")
        return _numbers([graph.nodes[node][attribute] for node in nodes], argument, nodes)

    return Graph.from_edges(
        src, dst, len(nodes), edge_weight=edge_weight,
        feat=column(feat, "feat"), label=column(label, "label"),
        undirected=not graph.is_directed(), name=name or getattr(graph, "name", "") or "networkx",
    )  # fmt: skip


def _numbers(values: list[Any], argument: str, owners: list[Any]) -> np.ndarray:
    """The values of an attribute as one array; an error names the first edge or node whose value does not fit."""
    shapes = []
    for value, owner in zip(values, owners):
        found = np.asarray(value)
        if found.dtype.kind not in "iufb":
            raise TypeError(f"{argument} names an attribute that is no number at {owner!r} (got {value!r})")
        shapes.append(found.shape)
        if found.shape != shapes[0]:
            raise ValueError(
                f"{argument} names an attribute of shape {shapes[0]} at {owners[0]!r} and {found.shape} at {owner!r}"
            )
    return np.asarray(values)


def from_pyg(data: Any, *, name: str = "pyg") -> Graph:
    """Graph of a homogeneous PyTorch Geometric ``Data``.

    Takes ``edge_index`` (row 0 flows to row 1), ``num_nodes``, ``edge_weight`` (or an ``edge_attr`` of one column of
    floating-point numbers; integers there, such as types of edges, are left out), ``x``, ``y`` and the train, val and
    test masks. Edges are put into canonical order; ``edge_ids`` keeps the column of ``edge_index`` that each came from.
    Floating-point ``y`` is taken where it holds 0 and 1 in a column for each task. Features and labels may share memory
    with the data.

    Raises:
        TypeError: heterogeneous data, masks that are not boolean, or a ``y`` of other floating-point numbers.
        ValueError: no ``edge_index``, or contents that are no valid graph.
    """
    from gnnsample_lab.graph.graph import Graph

    text("name", name)
    if hasattr(data, "edge_types"):
        raise TypeError("data must be a homogeneous torch_geometric Data (got heterogeneous data)")
    edge_index = getattr(data, "edge_index", None)
    if edge_index is None:
        raise ValueError("data must have an edge_index (got none)")
    edges = array("data.edge_index", edge_index)
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise ValueError(f"data.edge_index must have shape (2, edges) (got {tuple(edges.shape)})")
    num_nodes = data.num_nodes
    for row, ends in enumerate(edges):
        ids(f"data.edge_index[{row}]", ends, num_nodes)
    weight = getattr(data, "edge_weight", None)
    if weight is not None:
        weight = checks.weights(weight, edges.shape[1], "data.edge_weight")
    else:
        attribute = getattr(data, "edge_attr", None)
        shape = tuple(getattr(attribute, "shape", ()))
        if len(shape) == 1 or shape[1:] == (1,):
            attribute = array("data.edge_attr", attribute)
            if attribute.dtype.kind == "f":
                weight = checks.weights(attribute.reshape(-1), edges.shape[1], "data.edge_attr")
    splits = {k: getattr(data, m) for k, m in _MASKS.items() if getattr(data, m, None) is not None}
    for split, mask in splits.items():
        if array(_MASKS[split], mask).dtype.kind != "b":  # zeros and ones would be taken for vertex ids
            raise TypeError(f"{_MASKS[split]} must hold booleans (got dtype {mask.dtype})")
        if mask.ndim != 1:
            raise ValueError(
                f"{_MASKS[split]} must have shape ({data.num_nodes},): choose one of several divisions, as in "
                f"data.{_MASKS[split]}[:, 0] (got {tuple(mask.shape)})"
            )
    label = getattr(data, "y", None)
    if label is not None:
        label = _classes("data.y", label)
    return Graph.from_edges(
        edges[0], edges[1], num_nodes, edge_weight=weight, feat=getattr(data, "x", None),
        label=label, splits=splits, keep_edge_ids=True, name=name,
    )  # fmt: skip


def _classes(name: str, value: Any) -> Any:
    """Labels as ``Graph`` takes them: PyG keeps those of several tasks as floats, as its losses want them."""
    found = array(name, value)
    if found.dtype.kind != "f":
        return value
    if found.ndim == 2 and found.shape[1] > 1 and bool(((found == 0) | (found == 1)).all()):
        return found.astype(np.int64)
    raise TypeError(
        f"{name} must hold integers, or 0 and 1 in a column for each task (got dtype {found.dtype}): "
        "what is no class has no place in a graph's labels, set y to None"
    )


def to_pyg(graph: Graph) -> Any:
    """``torch_geometric.data.Data`` on the CPU, its edges in canonical order, so position i is edge i here.

    Features share memory with the graph where NumPy allows it; all else is copied.

    Raises:
        ImportError: torch_geometric is not installed.
    """
    try:
        from torch_geometric.data import Data
    except ImportError as error:
        raise ImportError("to_pyg() needs torch-geometric: pip install 'gnnsample_lab[pyg]'") from error
    import torch

    g = graph.to("cpu")
    src, dst = g.edges()

    def tensor(array: Any) -> Any:
        # torch warns about read-only memory (a memory-mapped cache) and takes no reversed arrays, so those are copied.
        shared = array.flags.writeable and min(array.strides) >= 0
        return torch.from_numpy(array if shared else np.array(array))

    data = Data(edge_index=tensor(np.stack([src, dst]).astype(np.int64)), num_nodes=g.num_nodes)
    if g.edge_weight is not None:
        data.edge_weight = torch.from_numpy(np.array(g.edge_weight))
    if g.feat is not None:
        data.x = tensor(g.feat)
    if g.label is not None:
        data.y = torch.from_numpy(np.array(g.label))
    for split, mask_name in _MASKS.items():
        if split in g.splits:
            mask = np.zeros(g.num_nodes, dtype=bool)
            mask[g.splits[split]] = True
            data[mask_name] = tensor(mask)
    return data
