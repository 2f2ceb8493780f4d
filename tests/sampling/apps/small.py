"""Every application, with settings for graphs of a few vertices."""

from __future__ import annotations

from gnnsample_lab.sampling import apps

SMALL = {
    "DeepWalk": lambda: apps.DeepWalk(6),
    "DeepWalk uniform": lambda: apps.DeepWalk(6, weighted=False),
    "PPR": lambda: apps.PPR(0.2),
    "Node2Vec": lambda: apps.Node2Vec(6),
    "MultiRW": lambda: apps.MultiRW(6, 4),
    "MultiRW uniform": lambda: apps.MultiRW(6, 4, "uniform"),
    "PinSAGEWalk": lambda: apps.PinSAGEWalk(restart=0.3),
    "KHop": lambda: apps.KHop((5, 3, 2)),
    "Layer": lambda: apps.Layer(20, 7),
    "Layer weighted": lambda: apps.Layer(20, 7, weighted=True),
    "FastGCN": lambda: apps.FastGCN(3, 4, 6),
    "LADIES": lambda: apps.LADIES(3, 4, 6),
    "MVS": lambda: apps.MVS(None, 4, 5),
    "ClusterGCN": lambda: apps.ClusterGCN(2, 4, "random"),
}
ANYWHERE = {"FastGCN", "ClusterGCN"}
"""Applications whose vertices are no neighbours of a transit."""
