"""Graphs: the type, its sources (OGB, SNAP, PyG, NetworkX, edge arrays, generators), and the catalogue."""

from gnnsample_lab.graph.catalogue import datasets
from gnnsample_lab.graph.edgewise.synthetic import random_weights, rmat
from gnnsample_lab.graph.errors import (
    CorruptDataError,
    DatasetNotFoundError,
    DownloadError,
    UnknownDatasetError,
)
from gnnsample_lab.graph.graph import Graph
from gnnsample_lab.graph.lacks import random_features
from gnnsample_lab.graph.load import load, load_default, load_or_twin
from gnnsample_lab.graph.recency import recency_weights
from gnnsample_lab.graph.twins.twin import twin, twin_statistics

__all__ = [
    "CorruptDataError",
    "DatasetNotFoundError",
    "DownloadError",
    "Graph",
    "UnknownDatasetError",
    "datasets",
    "load",
    "load_default",
    "load_or_twin",
    "random_features",
    "random_weights",
    "recency_weights",
    "rmat",
    "twin",
    "twin_statistics",
]
