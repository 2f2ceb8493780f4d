"""Numbers for people: digits that matter, units that suit."""

from __future__ import annotations

import pytest

from gnnsample_lab import readable


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 tasks"), (1, "1 task"), (1.0004, "1 task"), (1.01, "1.01 tasks"), (2, "2 tasks")],
)
def test_a_word_goes_with_its_count(count: float, text: str) -> None:
    assert f"{readable.number(count)} {readable.noun(count, 'task')}" == text
    assert readable.noun(count, "vertex", "vertices") == ("vertex" if text == "1 task" else "vertices")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (3011.44, "3,011"), (80.79, "80.8"), (6.366, "6.37"), (2.5, "2.5"), (174.0, "174"), (0.0042, "0.0042"),
     (-12.34, "-12.3"), (float("inf"), "inf"), (100.0, "100")],
)  # fmt: skip
def test_a_number_has_three_digits_or_all_before_the_point(value: float, text: str) -> None:
    assert readable.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(3011.44, "3,011"), (1.283, "1.3"), (0.912, "0.91"), (12.6, "13"), (1, "1.0")]
)
def test_a_ratio_has_two_digits(value: float, text: str) -> None:
    assert readable.times(value) == f"{text} times"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 bytes"), (1, "1 byte"), (936, "936 bytes"), (2_790_000, "2.79 MB"), (4321, "4.32 kB")],
)
def test_no_size_is_rounded_to_nothing(value: float, text: str) -> None:
    assert readable.size(value) == text


def test_times_come_in_their_unit() -> None:
    assert [readable.time(v) for v in (8.4, 12_300, 4_050_000)] == ["8.4 µs", "12.3 ms", "4.05 s"]


def test_shares_are_read_in_percent_with_a_space_that_does_not_break():
    assert readable.percent(0.347) == "35\u00a0%" and readable.percent(0.0123, 1) == "1.2\u00a0%"
    assert (
        readable.percent(0.1, 1, signed=True) == "+10.0\u00a0%"
        and readable.percent(-0.05, signed=True) == "-5\u00a0%"
    )
