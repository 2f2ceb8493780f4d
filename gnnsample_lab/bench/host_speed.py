"""How quick the host is that a suite ran on, beside its GPU.

Wall times of a mini-batch are as much the host's as the card's, and two machines with the same card need not have the
same host, or it to themselves. So a record says how long a loop of Python, and a launch and its wait, took there,
before the suite and after it: where others share the host, the two may differ, and the times in between with them, but
for those that are taken on a core found quick before each pass (:mod:`.quick_core`).
"""

from __future__ import annotations

from typing import Any

from gnnsample_lab.device import runtime

from . import quick_core, timing
from .floors import floor

TURNS = 10_000
"""Turns of the loop, each an addition."""
_PASSES = 15
_LAUNCHES = 64


def host_speed() -> dict[str, Any]:
    """Microseconds of this host, for a record's environment.

    Returns:
        ``python_us``: of :data:`TURNS` turns of a loop where the operating system lets it run, ``quick_python_us``: on
        a core found quick before each; ``launch_us``: of :func:`launch_times`, None without a GPU. All are medians,
        beside ``p10_..`` and ``p90_..``. ``cores``: among how many a quick one is looked for, 0 for no search.
        ``taken_again``: passes of this process that did not count, since their core became slow.
    """
    times = {
        "python_us": [quick_core.loop_us(TURNS) for _ in range(_PASSES)],
        "quick_python_us": [_quick_loop_us() for _ in range(_PASSES)],
    }
    if runtime.cuda_available():
        times["launch_us"] = launch_times()
    found: dict[str, Any] = {
        "launch_us": None, "cores": len(quick_core.cores()), "taken_again": quick_core.taken_again(),
    }  # fmt: skip
    for name, of in times.items():
        found |= {key: value for key, value in timing.spread(of, name).items() if key != "passes"}
    return found


def launch_times() -> list[float]:
    """Wall microseconds of a call that does next to nothing on the GPU, medians of passes: one launch of a CUDA graph
    with one kernel, which reads 16 bytes, and one wait."""
    work = floor.reading(16, 1)  # holds what the graph reads
    (empty,) = timing.capture_all([work])
    return timing.wall_times(lambda _: empty.launch(), _LAUNCHES)


def _quick_loop_us() -> float:
    with quick_core.quick_core():
        return quick_core.loop_us(TURNS)
