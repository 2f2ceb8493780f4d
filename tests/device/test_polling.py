"""A word that a kernel writes is seen, and who polls beside other threads leaves the interpreter to them."""

from __future__ import annotations

import sys
import threading
import time
import types

import numpy as np
import pytest

from gnnsample_lab.device import polling


def test_a_word_that_is_there() -> None:
    assert polling.arrives(memoryview(np.array([3, 7])), 1, 7)


@pytest.mark.parametrize("alone", [True, False])
def test_a_word_that_never_comes(monkeypatch: pytest.MonkeyPatch, alone: bool) -> None:
    monkeypatch.setattr(polling, "_SPINS", 10)
    monkeypatch.setattr(polling, "_WAIT_S", 0.01)
    view = memoryview(np.zeros(2, np.int64))
    if alone:
        assert not polling.arrives(view, 0, 1)
    else:
        with polling.beside_others():
            assert not polling.arrives(view, 0, 1)


def test_a_word_that_comes_late_or_never(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not there after the last look is there when the stream has ended, or else it is an error."""
    monkeypatch.setattr(polling, "_SPINS", 10)
    word = np.zeros(1, np.int64)
    waited: list[str] = []

    class Stream:
        def synchronize(self) -> None:
            waited.append("once")
            word[0] = written

    cuda = types.SimpleNamespace(get_current_stream=Stream)
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=cuda))
    written = 5
    polling.await_word(memoryview(word), 0, 0, "silent")
    assert not waited
    polling.await_word(memoryview(word), 0, 5, "silent")
    assert waited == ["once"]
    written = 6
    with pytest.raises(RuntimeError, match="silent"):
        polling.await_word(memoryview(word), 0, 7, "silent")


def test_others_run_meanwhile() -> None:
    """A thread that waits beside others holds no lock of the interpreter: these write what it waits for."""
    word = np.zeros(3, np.int64)
    polling.comes(word, 0, 1, 0.0)  # compiles
    before = sys.getswitchinterval()
    sys.setswitchinterval(30)  # whoever holds the lock keeps it
    try:
        thread = threading.Thread(target=lambda: (time.sleep(0.01), word.__setitem__(1, 7 << 32 | 3)))
        thread.start()
        with polling.beside_others():
            assert polling.arrives(memoryview(word), 1, 7 << 32 | 3)
        assert polling.comes(word, 1, 7, 0.0, shift=32) and not polling.comes(word, 1, 8, 0.0, shift=32)
        thread.join()
    finally:
        sys.setswitchinterval(before)


def test_beside_others_is_of_this_thread_alone() -> None:
    with polling.beside_others():
        found = []
        thread = threading.Thread(target=lambda: found.append(getattr(polling._thread, "beside", False)))
        thread.start()
        thread.join()
        assert polling._thread.beside
    assert found == [False] and not polling._thread.beside
