"""In a Jupyter kernel: functions of cells, output where it was asked for, Jupyter's interrupt."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.distributed.conftest import left_after

pytest.importorskip("torch")
manager = pytest.importorskip("jupyter_client.manager")
pytestmark = pytest.mark.slow  # a kernel, and ranks of its own

SETUP = """
import os, time
import gnnsample_lab as lab
factor = 7
class Answer:
    def __init__(self, value): self.value = value
def cell(rank, x):
    rank.log("here")
    return Answer(rank.index * factor + x)
def hang(rank):
    rank.log("hanging", os.getpid())
    time.sleep(300)
ranks = lab.distributed.Ranks(1, device="cpu")
"""


@pytest.fixture
def kernel() -> Iterator[tuple[Any, Any]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    started, client = manager.start_new_kernel(kernel_name="python3", env=environment)
    yield started, client
    client.stop_channels()
    started.shutdown_kernel(now=True)


def run_cell(kernel: tuple[Any, Any], code: str, interrupt_on: str = "") -> list[str]:
    """What a cell shows: text of streams and results, and names and values of errors."""
    started, client = kernel
    asked, shown = client.execute(code), []
    while True:
        message = client.get_iopub_msg(timeout=120)
        kind, content = message["msg_type"], message["content"]
        if message["parent_header"].get("msg_id") != asked:
            continue
        if kind == "stream":
            shown.append(content["text"])
            if interrupt_on and interrupt_on in content["text"]:
                started.interrupt_kernel()
        elif kind == "execute_result":
            shown.append(content["data"]["text/plain"])
        elif kind == "error":
            shown += [content["ename"], content["evalue"]]
        elif kind == "status" and content["execution_state"] == "idle":
            return shown


def test_cells_run_on_ranks(kernel: tuple[Any, Any]) -> None:
    assert run_cell(kernel, SETUP) == []
    assert run_cell(kernel, "[answer.value for answer in ranks.run(cell, 1)]") == ["rank 0: here\n", "[1]"]
    assert run_cell(kernel, "all(type(answer) is Answer for answer in ranks.run(cell, 1))")[-1] == "True"

    shown = run_cell(kernel, "ranks.run(hang)", interrupt_on="hanging")
    assert shown[-2] == "KeyboardInterrupt"
    assert not left_after([int(shown[0].split()[-1])])
