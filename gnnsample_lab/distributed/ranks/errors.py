"""The one error in the parent when any rank fails."""

from __future__ import annotations


class RankError(RuntimeError):
    """A rank raised, died or did not come back in time; all ranks of its start have been ended.

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
