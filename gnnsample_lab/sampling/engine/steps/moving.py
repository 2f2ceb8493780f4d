"""``lab.apps.MultiRW`` with a warp per sample (``moving.cu``), where it may run as one kernel over all steps."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnsample_lab.device import kernels

if TYPE_CHECKING:
    from gnnsample_lab.sampling.engine.gpu import GpuEngine

MAX_ROOTS = 512
"""Most roots of a sample; a block of two warps then keeps within 48 KiB of shared memory."""
_SHARED_BYTES = 48 * 1024


def serves(engine: GpuEngine, step: int, steps: int) -> bool:
    """Whether ``steps`` steps from ``step`` on are all that a run of MultiRW does."""
    from gnnsample_lab.sampling.apps.walks import MultiRW

    kind = type(engine.app)
    own = isinstance(engine.app, MultiRW) and all(
        getattr(kind, name) is getattr(MultiRW, name) for name in ("next", "step_transits", "num_transits")
    )
    return (
        own and step == 0 and steps == engine.shape.bound and engine.num_roots <= MAX_ROOTS
        and engine.streamed is None and engine.graph.max_in_degree < 2**32
    )  # fmt: skip


def launch(engine: GpuEngine, steps: int) -> None:
    """Walk all steps; their outputs are allocated, at equal distances."""
    id_bytes = engine.id_dtype.itemsize
    address = engine.addresses
    stride = (address[2] - address[1]) // id_bytes if steps > 1 else 0
    record = {"kernel": "walk", "index": None, "fused": steps}
    engine.schedule += [dict(record), *[record] * (steps - 1)]
    per_lane = -(-engine.num_roots // 32)
    per_warp = 32 * per_lane * (8 + id_bytes + 4)
    warps = max(1, min(4, _SHARED_BYTES // per_warp))
    if engine.num_samples:
        by_degree = int(engine.app.by_degree)  # type: ignore[attr-defined]  # a MultiRW's
        kernel = _kernel("int" if id_bytes == 4 else "long", by_degree)
        with engine.timing(engine.schedule[0], "sample_us"):
            kernel(
                (-(-engine.num_samples // warps),), (32 * warps,),
                (engine.plan.argument(), np.int64(steps), np.int64(stride), np.uint32(per_lane)),
                shared_mem=warps * per_warp,
            )  # fmt: skip


@functools.lru_cache(maxsize=8)
def _kernel(id_type: str, by_degree: int) -> Any:
    macros: dict[str, int | str] = {"ID_T": id_type, "BY_DEGREE": by_degree}
    return kernels.load_module("sampling/engine/steps/moving.cu", macros).get_function("move_roots").kernel
