"""Threads of parallel functions: how long they wait awake, and whose choice that is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, sys
import numpy as np
from gnnsample_lab.features.caching.host import gather_rows
from gnnsample_lab.device.jit import start_threads
out = np.zeros((2, 1), np.uint64)
gather_rows(np.arange(4, dtype=np.uint64).reshape(4, 1), np.array([3, 1]), out)
print(start_threads(), out.ravel().tolist(), sorted({"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ)))
"""


def spins(**chosen: str) -> tuple[str, str]:
    """What the script prints, and what GNU OpenMP says of itself when it is loaded."""
    env = {
        k: v
        for k, v in os.environ.items()
        if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS")
    }
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=env | {"OMP_DISPLAY_ENV": "VERBOSE"} | chosen, check=True,
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    if not ran.stdout.startswith("omp "):
        pytest.skip(f"Numba has another layer here: {ran.stdout.split()[0]}")
    return ran.stdout, ran.stderr


def test_threads_wait_awake_for_a_short_time_and_the_environment_stays_as_it_was() -> None:
    out, said = spins(NUMBA_NUM_THREADS="16")
    assert "GOMP_SPINCOUNT = '10000'" in said
    assert out.strip() == "omp [3, 1] []"
    out, said = spins(NUMBA_NUM_THREADS="2")
    assert "GOMP_SPINCOUNT = " in said and "GOMP_SPINCOUNT = '10000'" not in said, (
        "few threads wait as they always do"
    )
    assert out.strip() == "omp [3, 1] []"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("GOMP_SPINCOUNT", "77", "GOMP_SPINCOUNT = '77'"),
        ("OMP_WAIT_POLICY", "PASSIVE", "OMP_WAIT_POLICY = 'PASSIVE'"),
    ],
)
def test_what_the_user_says_counts(name: str, value: str, said: str) -> None:
    out, told = spins(**{name: value}, NUMBA_NUM_THREADS="16")
    assert said in told and "GOMP_SPINCOUNT = '10000'" not in told
    assert out.strip() == f"omp [3, 1] ['{name}']"
