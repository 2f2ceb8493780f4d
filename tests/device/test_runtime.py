"""Which device is taken, and what is said when it is not there."""

from __future__ import annotations

import subprocess
import sys
import threading
import types

import numpy as np
import pytest

from gnnsample_lab.checks import is_cuda_array
from gnnsample_lab.device import runtime


@pytest.fixture
def gpu(monkeypatch):
    """Call with True or False: whether there is a GPU."""

    def pretend(there: bool, environment: str | None = None) -> None:
        monkeypatch.setattr(runtime, "cuda_problem", lambda: None if there else "CuPy is on holiday")
        if environment is None:
            monkeypatch.delenv("LAB_DEVICE", raising=False)
        else:
            monkeypatch.setenv("LAB_DEVICE", environment)

    return pretend


@pytest.mark.parametrize("there", [True, False])
def test_auto_takes_the_gpu_when_there_is_one(gpu, there):
    gpu(there)
    assert runtime.resolve_device("auto") == runtime.resolve_device(None) == ("cuda" if there else "cpu")
    assert runtime.resolve_device() == ("cuda" if there else "cpu")
    assert runtime.cuda_available() is there


@pytest.mark.parametrize("there", [True, False])
def test_cpu_is_always_there(gpu, there):
    gpu(there)
    assert runtime.resolve_device("cpu") == "cpu"


@pytest.mark.parametrize("name", ["cuda", "gpu", "cuda:0"])
def test_cuda_by_any_name(gpu, name):
    gpu(True)
    assert runtime.resolve_device(name) == "cuda"
    gpu(False)
    with pytest.raises(RuntimeError, match="device='cuda' was asked for, but CuPy is on holiday"):
        runtime.resolve_device(name)


def test_the_environment_decides_auto_alone(gpu):
    gpu(True, "cpu")
    assert runtime.resolve_device("auto") == "cpu"
    assert runtime.resolve_device("cuda") == "cuda"
    gpu(False, "cuda")
    with pytest.raises(RuntimeError, match="LAB_DEVICE='cuda' was asked for, but"):
        runtime.resolve_device("auto")
    assert runtime.resolve_device("cpu") == "cpu"
    gpu(True, "abacus")
    with pytest.raises(ValueError, match="LAB_DEVICE must be .*'abacus'"):
        runtime.resolve_device("auto")
    gpu(False, "")
    assert runtime.resolve_device("auto") == "cpu"


def test_an_unknown_device_is_named(gpu):
    gpu(True)
    with pytest.raises(ValueError, match="device must be 'auto', 'cpu' or 'cuda' .*'tpu'"):
        runtime.resolve_device("tpu")


def run_alone(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_missing_and_broken_cupy_are_told_apart():
    code = (
        "import sys, importlib.abc\n"
        "class Block(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'cupy': raise {}\n"
        "sys.meta_path.insert(0, Block())\n"
        "from gnnsample_lab.device.runtime import cuda_problem\n"
        "print(cuda_problem())"
    )
    assert "CuPy is not installed" in run_alone(code.format("ImportError('no cupy')"))
    assert "CuPy does not import: bad library" in run_alone(code.format("OSError('bad library')"))


def test_the_runtime_module_imports_no_gpu_library():
    code = "import sys, gnnsample_lab.device.runtime\nprint('cupy' in sys.modules, 'torch' in sys.modules)"
    assert run_alone(code) == "False False"


def test_cuda_arrays_are_known_by_their_kind():
    cupy_like = type("ndarray", (), {"__module__": "cupy._core.core"})()
    assert is_cuda_array(cupy_like)
    assert is_cuda_array(types.SimpleNamespace(is_cuda=True))
    assert not is_cuda_array(types.SimpleNamespace(is_cuda=False))
    for host in (np.zeros(1), [1, 2], 3, None):
        assert not is_cuda_array(host)


def test_the_lock_is_reentrant_and_keeps_others_out():
    taken = []
    with runtime.lock, runtime.lock:
        other = threading.Thread(target=lambda: taken.append(runtime.lock.acquire(blocking=False)))
        other.start()
        other.join()
    assert taken == [False]


@pytest.mark.gpu
def test_the_gpu_describes_itself():
    assert runtime.device_name()
    assert runtime.num_sms() == runtime.device_properties()["multiProcessorCount"] >= 1
    assert runtime.cuda_problem() is None
