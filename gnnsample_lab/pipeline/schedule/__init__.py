"""The schedule model (``lab.schedule``): training pipelines on any number of GPUs, from stage times.

    times = lab.schedule.stage_times(0.8, 0.4, 3.2, batches=151, per="epoch")
    print(lab.schedule.simulate(times, "factored", gpus=8))

What it returns is modelled and labelled so. ``allocation`` has the arithmetic that running executors share.
"""

from __future__ import annotations

from .allocation import num_samplers, profit, should_switch, trainer_time
from .designs import best_split, break_even, designs
from .published import against_gnnlab, gnnlab_times
from .records import fit_host_share, model_error, recorded_runs, run_of, times_of
from .simulate import simulate
from .sweeps import allocation_sweep, one_gpu, pipelining, scaling, splits, switching
from .times import Costs, stage_times

__all__ = [
    "Costs",
    "against_gnnlab",
    "allocation_sweep",
    "best_split",
    "break_even",
    "designs",
    "fit_host_share",
    "gnnlab_times",
    "model_error",
    "num_samplers",
    "one_gpu",
    "pipelining",
    "profit",
    "recorded_runs",
    "run_of",
    "scaling",
    "should_switch",
    "simulate",
    "splits",
    "stage_times",
    "switching",
    "times_of",
    "trainer_time",
]
