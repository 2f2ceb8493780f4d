"""What an engine is, what it gets, and how one is found for a method and a device."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gnnsample_lab.minibatch.types import MiniBatch
from gnnsample_lab.sampling.neighbors.spec import SampleSpec

from .exchange import Exchange
from .layout import Layout
from .methods import METHODS


@dataclass(frozen=True, eq=False)
class Setup:
    """What an engine is made of; every rank of :attr:`Layout.exchange` makes one alike.

    Attributes:
        method: name of the method.
        spec: settings of the draw, ``expand="frontier"``.
        layout: part, partition, folder, ranks and collectives.
        scratch_bytes: bound of the buffers of ``"csp-fixed"``, and of a GPU's scratch memory; None is the default.
        cache_bytes: for copies of hot lists (``"direct-cached"``).
        topology_bytes: for own lists on a GPU, for methods that spill; None: all of them.
        visits: how often each vertex is expanded, ``float64[N]``, or None for the engine's estimate.
        count_reads: whether engines whose kernels read other memory by themselves count what was read.
        collectives: ``"auto"`` or ``"torch"``, see :class:`~.exchange.Exchange`.
        beside: the engine of another worker of this rank, whose copy of the part on a GPU is taken; None: a new one.
    """

    method: str
    spec: SampleSpec
    layout: Layout
    scratch_bytes: int | None = None
    cache_bytes: int = 0
    topology_bytes: int | None = None
    visits: Any = None
    count_reads: bool = False
    collectives: str = "auto"
    beside: Any = None

    @property
    def exchange(self) -> Exchange:
        return self.layout.exchange


class Engine(Protocol):
    """One method on one kind of device. Its module has ``engine(setup)``, which returns one.

    Bytes are counted in ``setup.exchange.traffic``, which the sampler replaces before each call. An engine that counts
    later has ``settle()`` too, which counts what is not counted yet; the traffic of calls before the last one may then
    be in that of an earlier call.
    """

    def sample(self, seeds: np.ndarray, batch_id: int) -> MiniBatch:
        """This rank's slice of the batch; all ranks of the exchange call it together, those without seeds too.

        Args:
            seeds: original ids of this rank's slice, integers ``[n]``, n may be 0; duplicates are merged.
            batch_id: of the whole batch, the same on all ranks.

        Returns:
            Original ids; ``positions`` are slots in the destinations' lists.
        """
        ...

    def sample_many(self, seeds: list[np.ndarray], first_batch_id: int) -> list[MiniBatch]:
        """Several batches, each as if sampled alone; all ranks give the same number."""
        ...

    def close(self) -> None:
        """Give back what other ranks may read, together with them."""
        ...


def make_engine(setup: Setup) -> Engine:
    """The engine of ``setup.method`` on the device of its rank.

    Raises:
        RuntimeError: the method does not run on that kind of device.
    """
    device = setup.layout.rank.device
    method = METHODS[setup.method]
    name = f"{__package__}.{method.cpu if device == 'cpu' else method.gpu}"
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        there = [m for m in METHODS if _is_there(m, device)]
        raise RuntimeError(
            f"method={setup.method!r} does not run on ranks of {device!r} in this version; these do: "
            f"{', '.join(map(repr, there)) or 'none'}; ranks of device='cpu' run all"
        ) from None
    found: Engine = module.engine(setup)
    return found


def _is_there(method: str, device: str) -> bool:
    name = METHODS[method].cpu if device == "cpu" else METHODS[method].gpu
    try:
        return importlib.util.find_spec(f"{__package__}.{name}") is not None
    except ModuleNotFoundError:
        return False
