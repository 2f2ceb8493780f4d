"""The one error when any rank fails, and how errors look that only say that other ranks are gone."""

from __future__ import annotations

import contextlib
import re

_PEERS = re.compile(
    r"gloo/|Connection (closed|reset) by peer|Broken pipe|[Tt]imed out waiting|monitoredBarrier|NCCL|ncclInternal"
)
_TIMED_OUT = re.compile(r"[Tt]imed out|[Tt]imeout|failed to pass monitoredBarrier")


def note_stage(error: BaseException, stage: str) -> None:
    """Have the error say in which stage it was raised; the innermost one stays."""
    if not hasattr(error, "_rank_stage"):
        with contextlib.suppress(AttributeError):  # a class with slots
            error._rank_stage = stage  # type: ignore[attr-defined]


def stage_of(error: BaseException, otherwise: str) -> str:
    """The stage that :func:`note_stage` told."""
    return str(getattr(error, "_rank_stage", otherwise))


class RankError(RuntimeError):
    """A rank raised, died or did not come back in time; all ranks of its start have been ended.

    Ranks that this process started end before it is raised, in their parent. Ranks that joined a job of ``torchrun``
    raise it themselves, all but the one that failed.

    Attributes:
        rank: index of the rank that failed first.
        stage: what that rank was at: ``"start"``, ``"rendezvous"``, the function's name or what ``rank.stage`` said.
        remote_traceback: the traceback of the rank as text; empty where there is none.
    """

    def __init__(self, message: str, rank: int = 0, stage: str = "", remote_traceback: str = "") -> None:
        super().__init__(message)
        self.rank = rank
        self.stage = stage
        self.remote_traceback = remote_traceback


def is_of_peers(error: BaseException) -> bool:
    """Whether the cause may be other ranks that died or were late."""
    of_torch = type(error).__module__.startswith("torch") and type(error).__name__.startswith("Dist")
    return of_torch or (isinstance(error, (RuntimeError, OSError)) and bool(_PEERS.search(text_of(error))))


def is_late(error: BaseException) -> bool:
    """Whether other ranks were waited for in vain."""
    return is_of_peers(error) and bool(_TIMED_OUT.search(text_of(error)))


def text_of(error: BaseException) -> str:
    """The error in words, its class first."""
    try:
        said = str(error)
    except Exception:  # an exception may have a __str__ that fails
        said = ""
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
