"""How long threads of GNU OpenMP wait awake. The package asks for it when it is imported, before anything heavy is.

GNU OpenMP's threads wait awake for ten milliseconds and more. On a virtual machine of many cores they keep those from
running for whom they wait: on a host of 32 cores rows that take 5 ms to gather took 20 to 34 ms when the call came 10
to 15 ms after the one before, as calls of a training loop do.

OpenMP reads how long when it is loaded. PyTorch brings a copy, and on many machines Numba's threads run on that one: so
nothing can be said once PyTorch has been imported, and ``import gnnsample_lab`` must come before ``import torch``.
"""

from __future__ import annotations

import os

from .host import usable_cores

NAMES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
"""Variables by which a user says it; then nothing is changed."""
SPINS = 10_000
"""Rounds that a thread waits awake, half a millisecond or less; OpenMP's own number is 300 000."""
FEW = 8
"""Threads up to which they wait as long as OpenMP lets them: few do not stand in each other's way, and mini-batches one
after the other took a fifth to a third longer on two cores where they slept in between."""


def sleep_soon() -> None:
    """Let threads that wait for work sleep soon, in this process and those that it starts, where there are many."""
    given = os.environ.get("NUMBA_NUM_THREADS", "")
    threads = int(given) if given.isdecimal() else usable_cores()
    if threads > FEW and not any(name in os.environ for name in NAMES):
        os.environ["GOMP_SPINCOUNT"] = str(SPINS)
