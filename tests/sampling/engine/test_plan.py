"""What the host tells kernels about a run: every field of the record has a method that writes it, and only that one."""

from __future__ import annotations

import ast
from types import SimpleNamespace

import numpy as np
import pytest

from gnnsample_lab.device.kernels import PACKAGE_ROOT
from gnnsample_lab.sampling.engine.plan import APP_PLAN, AppPlan, round_keys
from gnnsample_lab.sampling.engine.shape import StepShape

ENGINE = PACKAGE_ROOT / "sampling" / "engine"


def device_array(address: int, size: int = 1, itemsize: int = 4) -> SimpleNamespace:
    return SimpleNamespace(data=SimpleNamespace(ptr=address), size=size, itemsize=itemsize)


def told(plan: AppPlan) -> dict[str, int]:
    """Fields of one number that are not 0, as a kernel would read them."""
    record = np.frombuffer(plan.argument().tobytes(), APP_PLAN)
    single = [name for name in APP_PLAN.names if name not in ("keys", "tables")]
    return {name: int(record[name][0]) for name in single if record[name][0]}


def new_plan() -> AppPlan:
    return AppPlan(50, 7, 2, 2**64 - 1, 2**40 - 1)


COMMON = {
    "num_nodes": 50, "num_samples": 7, "num_roots": 2, "seed": 2**64 - 1, "first_sample": 2**40 - 1,
}  # fmt: skip
CALLS = {
    "graph": (
        lambda plan: plan.read_graph(
            SimpleNamespace(indptr=device_array(16), indices=device_array(32)), device_array(48), None, device_array(64)
        ),
        {"indptr": 16, "indices": 32, "prefix": 48, "max_weight": 64},
    ),
    "weight": (
        lambda plan: plan.read_graph(
            SimpleNamespace(indptr=device_array(16), indices=device_array(32)), None, device_array(48), None
        ),
        {"indptr": 16, "indices": 32, "weight": 48},
    ),
    "samples": (
        lambda plan: plan.grow_samples(device_array(16), device_array(32), device_array(48)),
        {"roots": 16, "sizes": 32, "status": 48},
    ),
    "history": (lambda plan: plan.read_history(device_array(1000, 6, 8)), {"history": 1000, "widths": 1024}),
    "step": (
        lambda plan: plan.begin_step(3, StepShape(4, 5, 20, False), 4096),
        {"step": 3, "num_transits": 4, "size": 5, "out": 4096},
    ),
    "transits": (lambda plan: plan.read_transits(device_array(16)), {"transits": 16}),
    # Kernels add where sample 2 begins: entry 100, and sum 100 + 2.
    "combined": (
        lambda plan: plan.read_combined(
            device_array(16), device_array(4000), device_array(8000, 1, 8), row=2, before=100
        ),
        {"combined_begin": 16, "combined": 4000 - 4 * 100, "combined_prefix": 8000 - 8 * 102},
    ),
    "sums alone": (
        lambda plan: plan.read_combined(device_array(16), None, device_array(8000, 1, 8)),
        {"combined_begin": 16, "combined_prefix": 8000},
    ),
    "edges": (
        lambda plan: plan.record_edges(
            SimpleNamespace(data=SimpleNamespace(ptr=64), shape=(9, 7, 3)), device_array(32)
        ),
        {"edges": 64, "edge_counts": 32, "edge_room": 7},
    ),
    "staged": (
        lambda plan: plan.read_staged(10, 20, 4096), {"staged_begin": 10, "staged_end": 20, "staged": 4096},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_method_writes_its_fields_and_no_others(name):
    call, written = CALLS[name]
    plan = new_plan()
    argument = plan.argument()
    call(plan)
    assert told(plan) == COMMON | written
    assert argument.tobytes() == plan.argument().tobytes()  # one memory: later launches see later changes


def test_every_field_is_written_by_some_method():
    fields = set(COMMON).union(*(written for _, written in CALLS.values()))
    assert fields | {"keys", "tables"} == set(APP_PLAN.names)


def test_keys_and_tables():
    plan = new_plan()
    plan.read_tables([device_array(16, 3), device_array(32, 4)])
    record = np.frombuffer(plan.argument().tobytes(), APP_PLAN)[0]
    assert record["keys"].tolist() == round_keys(2**64 - 1).tolist()
    assert record["tables"]["data"].tolist() == [16, 32, *[0] * 6]
    assert record["tables"]["length"].tolist() == [3, 4, *[0] * 6]


def test_what_a_step_leaves_is_forgotten():
    plan = new_plan()
    plan.read_combined(device_array(16), device_array(32), device_array(48))
    plan.read_staged(1, 2, 3)
    plan.forget_combined()
    plan.forget_staged()
    assert told(plan) == COMMON


def test_nothing_else_writes_the_record():
    """No item of an engine's plan is assigned or read anywhere: the methods are the only way."""
    found = []
    for path in sorted(ENGINE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Subscript) and ast.unparse(node.value).split(".")[-1] == "plan":
                found.append(f"{path.name}:{node.lineno}: {ast.unparse(node)}")
            if isinstance(node, ast.Attribute) and node.attr == "_record" and path.name == "gpu.py":
                found.append(f"{path.name}:{node.lineno}: {ast.unparse(node)}")
    assert not found, "\n".join(found)
