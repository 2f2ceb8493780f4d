"""A plugin for pytest: with it the tests marked ``gpu`` run on a host in place of a GPU (:mod:`tests.host_gpu`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import pytest

from gnnsample_lab.sampling.engine.language import link
from tests import host_gpu
from tests.host_gpu import cuda, memory

host_gpu.install()


def _not_linked(*_: object) -> NoReturn:
    raise RuntimeError("machine code of a GPU does not run on this host")


link._link = _not_linked  # at once, and not after ten seconds of compilers


@contextmanager
def _skipping() -> Iterator[None]:
    """What needs something that is not there is skipped."""
    try:
        yield
    except Exception as error:
        lack = host_gpu.lack(error)
        if lack is None:
            raise
        pytest.skip(f"a host in place of a GPU has no {lack}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    with _skipping():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with _skipping():
        return (yield)


@pytest.fixture(autouse=True)
def nothing_is_done_that_a_gpu_may_not_survive() -> Iterator[None]:
    """Nothing is written past an array, and no stream is used that has been destroyed."""
    memory.damage(), cuda.misused()
    yield
    found = memory.damage() + memory.torn() + cuda.misused()
    assert not found, found
