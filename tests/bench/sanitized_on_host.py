"""The program of ``bench sanitize`` with a host in place of a GPU (:mod:`tests.host_gpu`), in a process of its own.

``python -m tests.bench.sanitized_on_host [CASE ...]`` prints what the program prints. PyTorch's tensors stay where they
are and say that they lie on a GPU, where a case makes them by itself; kernels of applications that were written by hand
stand for linked ones. What needs more is said as a failure.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any, NoReturn

import torch

from gnnsample_lab.bench.sanitizer import inputs, launches, program
from gnnsample_lab.bench.suites.nextdoor import native
from gnnsample_lab.compute.aggregation import csr
from gnnsample_lab.device import kernels
from gnnsample_lab.sampling.engine import gpu
from gnnsample_lab.sampling.engine.language import link
from tests import host_gpu


class OnGpu(torch.Tensor):
    """A tensor of the host that says that it lies on a GPU, and what is made of it."""

    @property
    def is_cuda(self) -> bool:
        return True

    def cpu(self, *_: Any, **__: Any) -> torch.Tensor:
        return self.as_subclass(torch.Tensor)


OnGpu.__module__ = "torch"  # by which this package knows tensors


def main() -> int:
    """Run all cases, or those that are named."""
    host_gpu.install()
    counts = launches.count_launches()
    _without_cuda_in_torch()
    _with_kernels_by_hand(counts)
    _with_patience()
    cases = program.run("cuda", sys.argv[1:] or None)
    print(program.MARK + json.dumps({"cases": cases, "launches": counts}), flush=True)
    return 0


def _without_cuda_in_torch() -> None:
    from gnnsample_lab.distributed.features import gpu as rows
    from gnnsample_lab.distributed.sampling.gpu import csp, own

    tensor, empty = inputs.tensor, torch.empty
    inputs.tensor = lambda array, device: (
        tensor(array, "cpu").as_subclass(OnGpu) if device != "cpu" else tensor(array, device)
    )
    torch.empty = lambda *shape, device=None, **options: empty(*shape, **options)
    for module in (csp, own):
        module.one_stream = contextlib.nullcontext  # type: ignore[attr-defined]
    rows._on_torch_stream = csr.torch_stream = contextlib.nullcontext  # type: ignore[assignment]


def _with_kernels_by_hand(counts: launches.Launches) -> None:
    plain = gpu.GpuEngine.__init__

    def made(self: Any, graph: Any, app: Any, *args: Any, **options: Any) -> None:
        plain(self, graph, app, *args, **options)
        with contextlib.suppress(LookupError):
            chosen = native.provider(app, graph)
            self._provider = lambda source, macros: launches.CountedModule(
                chosen(source, macros), launches.LINKED, counts
            )

    def load(*_: Any) -> NoReturn:
        raise RuntimeError("machine code of a GPU does not run on this host")

    link.load = load
    gpu.GpuEngine.__init__ = made  # type: ignore[method-assign]


def _with_patience() -> None:
    """A block of a GPU gives up a wait after polls that take a busy host less than its turns."""
    inlined = kernels.inline_source

    def patient(path: Path, seen: set[Path] | None = None) -> str:
        return inlined(path, seen).replace("#define MAX_POLLS (1u << 26)", "#define MAX_POLLS 0xFFFFFFFFu")

    kernels.inline_source = patient


if __name__ == "__main__":
    sys.exit(main())
