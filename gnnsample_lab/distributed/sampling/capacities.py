"""Capacities of the buffers of ``csp-fixed``: found in the first batches, the same on all ranks, grown together.

A capacity is for one hop, one asker and one owner: so many ids may be asked for at once, and so many picks may come
back. It is :data:`MARGIN` times the largest number of :data:`WARM_UP` batches, rounded up to a power of two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnsample_lab.sampling.neighbors.sizes import power_of_two

WARM_UP = 8
"""Batches that are sampled with exact sizes before buffers are fixed."""
MARGIN = 1.25
"""Room above the largest number seen."""
SCRATCH_BYTES = 2**28
"""Default bound of the buffers of a rank."""


@dataclass(frozen=True, eq=False)
class Capacities:
    """Entries that each buffer holds.

    Attributes:
        ids: ``int64[H, P, P]``: by hop, asker and owner, ids of a request.
        picks: ``int64[H, P, P]``: by hop, asker and owner, picks of a reply.
    """

    ids: np.ndarray
    picks: np.ndarray

    def nbytes(self, member: int, id_bytes: int, pick_bytes: int) -> int:
        """Bytes of one member's buffers, those of all hops together.

        Args:
            member: which one.
            id_bytes: of an id; a request has one more entry, which counts its ids. A list of a reply has 4 bytes more.
            pick_bytes: of a pick, with its slot where that is sent.
        """
        asked = self.ids[:, member, :].sum() + self.ids[:, :, member].sum()
        picked = self.picks[:, member, :].sum() + self.picks[:, :, member].sum()
        counters = 2 * self.ids.shape[0] * self.ids.shape[1]
        return int((asked + counters) * id_bytes + asked * 4 + picked * pick_bytes)

    def check(self, scratch_bytes: int, id_bytes: int, pick_bytes: int) -> None:
        """RuntimeError where a member's buffers exceed ``scratch_bytes``: all members find the same one."""
        sizes = [self.nbytes(p, id_bytes, pick_bytes) for p in range(self.ids.shape[1])]
        worst = int(np.argmax(sizes))
        if sizes[worst] > scratch_bytes:
            raise RuntimeError(
                f"method='csp-fixed' needs buffers of {sizes[worst]:,} bytes on the rank of part {worst}, more than "
                f"scratch_bytes={scratch_bytes:,}: allow more, take smaller batches, or method='csp'"
            )

    def grown(self, ids: np.ndarray, picks: np.ndarray) -> Capacities:
        """At least what was asked for this time, with the margin; what was enough stays."""
        return Capacities(
            np.where(ids > self.ids, _rounded(ids), self.ids),
            np.where(picks > self.picks, _rounded(picks), self.picks),
        )


def capacities_for(ids: np.ndarray, picks: np.ndarray) -> Capacities:
    """Capacities for the largest numbers of the warm-up, over all ranks: ``int64[H, P, P]`` each."""
    return Capacities(_rounded(ids), _rounded(picks))


def _rounded(largest: np.ndarray) -> np.ndarray:
    found = [power_of_two(max(1, int(np.ceil(MARGIN * n)))) for n in largest.ravel().tolist()]
    return np.array(found, dtype=np.int64).reshape(largest.shape)
