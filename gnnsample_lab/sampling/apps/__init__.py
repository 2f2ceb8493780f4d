"""``lab.apps``: the applications of NextDoor's evaluation (sections 4.2 and 8), written on ``lab.SamplingApp``.

Each is meant to be read: copy one and change it. Defaults are those of NextDoor's evaluation; where an application's
own paper has others, its docstring says so. Arguments of the wrong kind are a TypeError, those out of range a
ValueError; the message names the argument.
"""

from __future__ import annotations

from .clusters import ClusterGCN
from .importance import LADIES, FastGCN
from .khop import KHop
from .layer import Layer
from .mvs import MVS
from .walks import PPR, DeepWalk, MultiRW, Node2Vec, PinSAGEWalk

__all__ = [
    "LADIES",
    "MVS",
    "PPR",
    "ClusterGCN",
    "DeepWalk",
    "FastGCN",
    "KHop",
    "Layer",
    "MultiRW",
    "Node2Vec",
    "PinSAGEWalk",
]
