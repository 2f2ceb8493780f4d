"""A word that a kernel writes is seen, and who polls beside other threads leaves the interpreter to them."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from gnnsample_lab.device import polling


def test_a_word_that_is_there() -> None:
    assert polling.arrives(memoryview(np.array([3, 7])), 1, 7)


@pytest.mark.parametrize("alone", [True, False])
def test_a_word_that_never_comes(monkeypatch: pytest.MonkeyPatch, alone: bool) -> None:
    monkeypatch.setattr(polling, "_SPINS", 10)
    monkeypatch.setattr(polling, "_NAPS", 10)
    view = memoryview(np.zeros(2, np.int64))
    if alone:
        assert not polling.arrives(view, 0, 1)
    else:
        with polling.beside_others():
            assert not polling.arrives(view, 0, 1)


def test_others_run_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    word = np.zeros(1, np.int64)
    view = memoryview(word)
    assert polling.arrives(view, 0, 0) and not slept
    with polling.beside_others():
        monkeypatch.setattr(time, "sleep", lambda s: (slept.append(s), word.__setitem__(0, 1)))
        assert polling.arrives(view, 0, 1)
    assert len(slept) == 1
    with polling.beside_others():
        found = []
        thread = threading.Thread(target=lambda: found.append(getattr(polling._thread, "naps", False)))
        thread.start()
        thread.join()
    assert found == [False]  # of this thread alone
