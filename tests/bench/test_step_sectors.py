"""Sectors of the stepper's instructions: what is measured is what was counted."""

from __future__ import annotations

import json

import pytest

from gnnsample_lab import bench
from gnnsample_lab.bench import step_sectors
from gnnsample_lab.bench.profiler import find_ncu
from gnnsample_lab.bench.suite import Unavailable
from gnnsample_lab.device import runtime


def test_each_instruction_reaches_as_many_sectors_as_were_counted():
    found = step_sectors.instructions()
    assert len(found) > 40
    assert {each.kind for each in found} == set(step_sectors.KINDS)
    assert {each.mechanism for each in found} == {name for name, _ in step_sectors.RUNS}
    assert len({(each.kind, each.item_bytes, each.reach) for each in found}) == len(found)
    for each in found:
        assert each.counted == len({at // 32 for at in each.reach if at >= 0}) > 0
        assert all(at % each.item_bytes == 0 for at in each.reach if at >= 0)


def test_ncu_s_lines_become_rows_in_the_order_of_the_launches():
    wanted = step_sectors.instructions()[:3]
    lines = [
        f'"{number}","repeat","{name}","{0 if "red" in name else each.counted}"'
        for number, each in enumerate(wanted)
        for name in step_sectors.METRICS
    ]
    head = ["==PROF== Connected", '"ID","Kernel Name","Metric Name","Metric Value"']
    rows = step_sectors.rows(wanted, step_sectors.parse("\n".join([*head, *reversed(lines)])))
    assert [row["measured"] for row in rows] == [each.counted for each in wanted]
    agreed = step_sectors.agreement(rows)
    assert sum(a for a, _ in agreed.values()) == sum(n for _, n in agreed.values()) == 3
    rows[0]["measured"] += 1
    assert sum(a for a, _ in step_sectors.agreement(rows).values()) == 2
    assert step_sectors.parse("no metrics") == []


def test_without_a_gpu_nothing_is_recorded():
    if runtime.cuda_available():
        pytest.skip("there is a GPU")
    with pytest.raises(Unavailable, match="step-sectors"):
        bench.run("step-sectors")


@pytest.mark.gpu
def test_loads_and_stores_touch_the_sectors_that_the_twins_count(tmp_path):
    if find_ncu() is None:
        pytest.skip("no ncu here")
    rows, origin = step_sectors.measure()
    if rows is None and "ERR_NVGPUCTRPERM" in origin:
        pytest.skip(origin)
    assert rows is not None, origin
    # An atomic may be split or merged on its way; loads and stores may not.
    wrong = [row for row in rows if row["kind"] != "atomic" and row["counted"] != row["measured"]]
    assert not wrong, json.dumps(wrong[:5])
