"""Threads of parallel functions: how long they wait awake, and whose choice that is."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

from gnnsample_lab.device import openmp

SCRIPT = """
import os, sys
import numpy as np
import gnnsample_lab
if len(sys.argv) > 1:
    import torch
from gnnsample_lab.features.caching.host import gather_rows
from gnnsample_lab.device.jit import start_threads
out = np.zeros((2, 1), np.uint64)
gather_rows(np.arange(4, dtype=np.uint64).reshape(4, 1), np.array([3, 1]), out)
print(start_threads(), out.ravel().tolist(), os.environ.get("GOMP_SPINCOUNT"))
"""


def spins(*given: str, **chosen: str) -> tuple[str, list[str]]:
    """What the script prints, and what every copy of GNU OpenMP says of its rounds when it is loaded."""
    env = {k: v for k, v in os.environ.items() if k not in (*openmp.NAMES, "OMP_NUM_THREADS")}
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, *given], env=env | {"OMP_DISPLAY_ENV": "VERBOSE"} | chosen, check=True,
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    if not ran.stdout.startswith("omp "):
        pytest.skip(f"Numba has another layer here: {ran.stdout.split()[0]}")
    said = [line.split("'")[1] for line in ran.stderr.splitlines() if "GOMP_SPINCOUNT = " in line]
    assert said
    return ran.stdout.strip(), said


@pytest.mark.parametrize("others", [(), ("torch",)])
def test_many_threads_wait_awake_for_a_short_time_in_every_copy(others: tuple[str, ...]) -> None:
    """PyTorch's copy may be the one that Numba's threads run on."""
    if others and importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    out, said = spins(*others, NUMBA_NUM_THREADS="16")
    assert set(said) == {"10000"} and out == "omp [3, 1] 10000"


def test_few_threads_wait_as_they_always_do() -> None:
    out, said = spins(NUMBA_NUM_THREADS="2")
    assert "10000" not in said and out == "omp [3, 1] None"


@pytest.mark.parametrize(
    ("name", "value", "left"), [("GOMP_SPINCOUNT", "77", "77"), ("OMP_WAIT_POLICY", "PASSIVE", "None")]
)
def test_what_the_user_says_counts(name: str, value: str, left: str) -> None:
    out, said = spins(**{name: value}, NUMBA_NUM_THREADS="16")
    assert "10000" not in said and out == f"omp [3, 1] {left}"
    assert name != "GOMP_SPINCOUNT" or set(said) == {"77"}


@pytest.mark.parametrize(
    ("cores", "asked", "expected"), [(8, None, None), (9, None, "10000"), (2, "16", "10000"), (32, "4", None)]
)
def test_as_many_threads_as_numba_will_have(
    monkeypatch: pytest.MonkeyPatch, cores: int, asked: str | None, expected: str | None
) -> None:
    for name in (*openmp.NAMES, "NUMBA_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    if asked is not None:
        monkeypatch.setenv("NUMBA_NUM_THREADS", asked)
    monkeypatch.setattr(openmp, "usable_cores", lambda: cores)
    openmp.sleep_soon()
    found = os.environ.get("GOMP_SPINCOUNT")
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    assert found == expected
