"""The clocks take the medians that they promise; the times are made up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gnnsample_lab.bench import timing
from gnnsample_lab.bench.suite import Spread
from gnnsample_lab.spans import covered


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """Seconds that the next pieces of work take, in this order."""
    takes: list[float] = []

    def ticks() -> Iterator[float]:
        now = 0.0
        while True:
            yield now
            now += takes.pop(0)
            yield now

    at = ticks()
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(at))
    return takes


def test_one_pass_is_the_median_after_a_warm_one(clock) -> None:
    clock += [9.0, 3.0, 1.0, 2.0]
    assert timing.pass_us(lambda: None) == pytest.approx(2e6)


def test_a_spread_is_the_median_between_its_tenth_and_ninetieth_percentiles() -> None:
    assert timing.spread([3.0, 1.0, 2.0, 5.0, 4.0]) == {
        "us": 3.0, "p10_us": pytest.approx(1.4), "p90_us": pytest.approx(4.6), "passes": 5,
    }  # fmt: skip
    found = timing.spread([3.0, 1.0, 2.0], "ms")
    row = {"ms": {"a": found["ms"]}, "spread": {"a": timing.around(found)}}
    assert timing.around(found) == {key: found[key] for key in ("p10_ms", "p90_ms", "passes")}
    assert Spread("ms.a")(row) == "2.00 (1.20-2.80)" and Spread("ms.b")(row) is None
    row = {"ms": {"a": 2.0}, "percent": {"a": 50.0}, "spread": {"ms.a": timing.around(found)}}
    assert Spread("ms.a")(row) == "2.00 (1.20-2.80)", "by its whole name, where others end as it does"
    assert Spread("percent.a")(row) == 50.0
    assert timing.spread([7.0], "ms") == {"ms": 7.0, "p10_ms": 7.0, "p90_ms": 7.0, "passes": 1}
    with pytest.raises(ValueError, match="at least one"):
        timing.spread([])


def test_wall_times_are_the_medians_of_the_passes_after_a_warm_one(clock) -> None:
    clock += [0.1, 0.1, 0.1, 5.0, 4.0, 9.0, 3.0, 8.0, 2.0]
    assert timing.wall_times(lambda i: None, 3, passes=2) == pytest.approx([5e6, 3e6])


def test_turns_come_one_after_the_other_after_a_warm_one(clock) -> None:
    clock += [9.0, 9.0, 1.0, 5.0, 2.0, 6.0]
    done: list[str] = []
    works = [lambda name=name: done.append(name) for name in "ab"]
    assert timing.turns(works, passes=2) == [pytest.approx([1e6, 2e6]), pytest.approx([5e6, 6e6])]
    assert "".join(done) == "ababab" and timing.turns([]) == []


def test_each_piece_is_the_best_pass_median_after_a_warm_one(clock) -> None:
    clock += [0.1, 0.1, 0.1, 5.0, 4.0, 9.0, 3.0, 8.0, 2.0]
    done: list[int] = []
    assert timing.wall_us(done.append, 3, passes=2) == pytest.approx(3e6)
    assert done == [0, 1, 2] * 3


def test_time_that_kernels_share_counts_once():
    assert covered([]) == 0
    assert covered([(5, 7), (0, 2), (1, 3), (2.5, 2.75), (7, 8)]) == 3 + 3
