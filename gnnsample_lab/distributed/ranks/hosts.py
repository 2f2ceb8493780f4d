"""Ranks on several hosts: ``torchrun`` starts a script on each, and the script joins.

``notebooks/scripts/train_on_hosts.py`` is one, which trains: ``lab.train(graph, ranks=lab.distributed.join())``. No
function travels between hosts: each host has the script. ``torchrun`` restarts nothing here and ends all ranks of a
host when one fails; those of other hosts find out by the ranks' signs of life (:mod:`.life`), also where a rank was
stopped.
"""

from __future__ import annotations

import atexit
import json
import os
import shlex
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from gnnsample_lab import checks

from .backends import NCCL, choose
from .errors import RankError
from .life import EndRequest, Life, end_process, own_store
from .rank import Groups, Rank
from .run import DEVICES, HEARTBEAT_S, MAX_RANKS, _seconds

_NEEDED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_joined: Rank | None = None


def torchrun_line(
    script: Any, *args: Any, hosts: int = 2, ranks_per_host: int = 2, host: str = "HOST0", port: int = 29500
) -> str:
    """Print and return the command that starts ``script`` on every host; the script calls :func:`join`.

    Args:
        script: path of a Python file that all hosts have, such as ``notebooks/scripts/train_on_hosts.py``.
        args: arguments of the script.
        hosts: number of hosts, on each of which the line is to be run.
        ranks_per_host: ranks of each host, such as its GPUs.
        host: name or address of one of the hosts, where all meet.
        port: a free port there.

    Raises:
        TypeError: an argument of the wrong kind.
        ValueError: an argument out of range.
    """
    checks.path("script", script)
    checks.text("host", host)
    if not host or any(c.isspace() for c in host):
        raise ValueError(f"host must be a name or an address (got {host!r})")
    words = [
        "torchrun",
        f"--nnodes={checks.whole('hosts', hosts, 1, 2**16)}",
        f"--nproc-per-node={checks.whole('ranks_per_host', ranks_per_host, 1, MAX_RANKS)}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={host}:{checks.whole('port', port, 1, 65535)}",
        "--rdzv-id=lab",
        os.fspath(script),
        *map(str, args),
    ]
    line = " ".join(shlex.quote(str(word)) for word in words)
    print(line)
    return line


def join(device: str = "auto", timeout_s: float = 600, heartbeat_s: float | None = HEARTBEAT_S) -> Rank:
    """The rank that this process is, in a script that ``torchrun`` started; the same object each time.

    It is what ``lab.train(ranks=)``, ``lab.distributed.Sampler`` and ``FeatureCache`` take.

    From then on an error that ends the script of one rank, or one in its ``lab.train``, ends the others: they raise
    ``RankError``, which names the rank, its host and its stage, or print it and end where they wait for a GPU or for a
    rank that was stopped. So does the end of a rank's process. A rank whose script ends well leaves the job. SIGTERM,
    by which ``torchrun`` ends the others, has a process stay for some seconds until it is known which rank ended; a
    script may have a handler of its own.

    Args:
        device: ``"auto"`` is NCCL where this host has a GPU for each of its ranks, else Gloo; ``"cpu"``, ``"cuda"``.
        timeout_s: longest wait for the other ranks, at the start and in collectives, in seconds.
        heartbeat_s: seconds without a sign of life after which a rank counts as lost, as of
            ``lab.distributed.Ranks``; None switches signs of life off.

    Raises:
        TypeError: an argument of the wrong kind.
        ValueError: an argument out of range.
        RuntimeError: ``torchrun`` did not start this process; ``device="cuda"`` and there are not enough GPUs; the
            other ranks did not come; hosts differ in NCCL or Gloo, or in their number of ranks.
    """
    global _joined
    checks.choice("device", device, DEVICES)
    seconds = _seconds("timeout_s", timeout_s)
    heartbeat_s = checks.optional(_seconds, "heartbeat_s", heartbeat_s)
    missing = [name for name in _NEEDED if name not in os.environ]
    if missing:
        raise RuntimeError(
            f"{missing[0]} is not set: torchrun did not start this process; lab.distributed.torchrun_line(...) gives "
            "the command"
        )
    if _joined is not None:
        return _joined
    index, size, local_index, local_size = (int(os.environ[name]) for name in _NEEDED[:4])
    backend, reason = choose(device, local_size)
    store = _met(index, size, {"backend": backend, "ranks a host": local_size}, seconds)
    for name, value in NCCL.items():
        os.environ.setdefault(name, value)
    import torch
    import torch.distributed as dist

    if backend == "gloo":
        torch.set_num_threads(1)
        os.environ.setdefault("LAB_DEVICE", "cpu")
        os.environ.setdefault("NUMBA_NUM_THREADS", "1")
    else:
        torch.cuda.set_device(local_index)
        import cupy

        cupy.cuda.Device(local_index).use()
    if index == 0 and device == "auto":
        print(f"{size} ranks on {'NCCL' if backend == 'nccl' else 'Gloo, on CPUs'}: {reason}", flush=True)
    is_watched = size > 1 and heartbeat_s is not None
    own = own_store(seconds) if is_watched else None  # all have theirs once the group is there
    dist.init_process_group(
        backend, store=store, rank=index, world_size=size, timeout=timedelta(seconds=seconds)
    )
    life = None
    if is_watched:
        life = Life(own, index, size, local_size, heartbeat_s)
        life.end_request = EndRequest(life)
        sys.excepthook = _hook(life, sys.excepthook)
    atexit.register(_leave, life)
    place = "cpu" if backend == "gloo" else f"cuda:{local_index}"
    _joined = Rank(
        index,
        size,
        device=place,
        backend=backend,
        group=dist.group.WORLD,
        groups=Groups(index, place, seconds),
        timeout_s=seconds,
        tell=_Console(index, life),
        local_index=local_index,
        local_size=local_size,
        life=life,
    )
    return _joined


def _met(index: int, size: int, mine: dict[str, Any], seconds: float) -> Any:
    """The store in which all ranks have met and found that they have ``mine`` alike: else they would wait for ever.

    Raises:
        RuntimeError: a rank has something else, on all ranks alike; or did not come.
    """
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    store = next(rendezvous("env://", index, size, timeout=timedelta(seconds=seconds)))[0]
    store = dist.PrefixStore("gnnsample_lab", store)
    store.set(f"rank {index}", json.dumps(mine))
    told = [json.loads(store.get(f"rank {rank}")) for rank in range(size)]
    store.set(f"rank {index} has read", "")
    for rank in range(
        size if index == 0 else 0
    ):  # the store may be a server of rank 0's, which must not end before
        store.get(f"rank {rank} has read")
    for rank, theirs in enumerate(told):
        for name, value in told[0].items():
            if theirs[name] != value:
                raise RuntimeError(
                    f"{name} must be the same on all hosts (got {value} on rank 0, {theirs[name]} on rank {rank}); "
                    "lab.distributed.join(device='cpu') takes Gloo everywhere, --nproc-per-node sets the ranks"
                )
    return store


def _hook(life: Life, usual: Callable[..., Any]) -> Callable[..., Any]:
    """For ``sys.excepthook``: an error that ends the script, wherever it was raised, is that of all ranks."""

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        found = life.failed(error)
        if found is None:
            usual(kind, error, trace)
        else:
            found.__cause__ = error
            usual(RankError, found, None)

    return hook


def _leave(life: Life | None) -> None:
    import torch.distributed as dist

    if life is not None and not life.leave():
        end_process()  # to take groups apart may wait for ranks that are gone
    if dist.is_initialized():
        dist.destroy_process_group()


class _Console:
    """Where no notebook listens: logs and bars go to the terminal, stages are told with signs of life."""

    def __init__(self, index: int, life: Life | None) -> None:
        self._index, self._life = index, life
        self._bars: dict[int, Any] = {}

    def __call__(self, kind: str, **header: Any) -> None:
        if kind == "log":
            print(f"rank {self._index}: {header['text']}", flush=True)
        elif kind == "stage" and self._life is not None:
            self._life.enter(header["stage"])
        elif kind == "progress":
            from tqdm.auto import tqdm

            if header["bar"] not in self._bars:
                text = f"rank {self._index}: {header['text']}".rstrip(": ")
                self._bars[header["bar"]] = tqdm(total=header["total"], desc=text)
            bar = self._bars[header["bar"]]
            bar.update(header["done"] - bar.n)
            if header["ended"]:
                self._bars.pop(header["bar"]).close()
