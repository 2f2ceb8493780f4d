"""What the cells that reveal a result say of it, without a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gnnsample_widgets import recorded, transit

import gnnsample_lab as lab
from gnnsample_lab import figures
from gnnsample_lab.sampling.explain import reads, threads
from tests.notebooks.claims import FOLDER, run_cells


@pytest.fixture
def scope() -> dict[str, Any]:
    graph = lab.load("arxiv-like", scale=0.05, use_cache=False)
    return {
        "np": np, "lab": lab, "figures": figures, "recorded": recorded, "transit": transit, "reads": reads,
        "threads": threads, "g": graph, "DEVICE": "cpu", "show": lambda *shown: None,
    }  # fmt: skip


def revealed(scope: dict[str, Any], value: float) -> str:
    guess = scope["guess"]
    guess.value = value
    guess.lock()
    return str(guess.text)


def test_00_counts_auto_as_no_order_and_says_what_a_cpu_can_show(scope: dict[str, Any]) -> None:
    said = run_cells("00", scope, "guess", "sample", "same", "reveal")
    assert "every strategy draws the same sample: True" in said
    text = revealed(scope, 0.0)
    assert scope["guess"].result == 0
    others = set(lab.strategies()) - {"auto", "block-bsp"}
    assert f"all {len(others)} other orders run one loop" in text
    assert (FOLDER.parent / text.rsplit(": ", 1)[1].rstrip(".")).is_file(), "where it is tested"


def test_02_reveals_what_was_recorded_and_not_what_the_model_has_no_times_for(scope: dict[str, Any]) -> None:
    run_cells("02", scope, "guess", "compare", "reveal")
    text = revealed(scope, 5.0)
    slow, fast = (
        lab.SampleTrace.load(recorded.measured_traces()[f"arxiv-like_{name}_reservoir"])
        for name in ("block-bsp", "persistent")
    )
    assert scope["guess"].result == pytest.approx(slow.total_us / fast.total_us)
    assert slow.label in text and "modelled" not in text


def test_03_says_why_sorting_may_ask_for_more(scope: dict[str, Any]) -> None:
    run_cells("03", scope, "guess", "reveal")
    text = revealed(scope, 1.0)
    assert "Above 1, samples share lists; below 1, hardly any do" in text
