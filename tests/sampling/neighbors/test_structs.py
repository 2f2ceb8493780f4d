"""The structures that host and kernels share: NumPy's layout against the CUDA compiler's, for both widths of ids.

The compiler checks it (``static_assert``), so no GPU is needed.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from gnnsample_lab.device.kernels import PACKAGE_ROOT, Variant, inline_source, variants_of
from gnnsample_lab.sampling.neighbors import plan
from tests.conftest import absent
from tests.nvrtc_compile import CompileError, Nvrtc, load_nvrtc, missing_wheels

FINISH_CU = PACKAGE_ROOT / "minibatch" / "gpu" / "finish.cu"
PAIRS = {
    "Batch": plan.BATCH, "Table": plan.TABLE, "Hop": plan.HOP, "Hub": plan.HUB, "Plan": plan.PLAN,
    "Finish": plan.FINISH, "Place": plan.PLACE, "Job": plan.JOB,
}  # fmt: skip
CONSTANTS = {
    "LAB_COUNTERS": plan.COUNTERS, "LAB_MAX_HOPS": plan.MAX_HOPS, "STATUS_OVERFLOW": plan.STATUS_OVERFLOW,
    "STATUS_BAD_SEED": plan.STATUS_BAD_SEED, "STATUS_STALLED": plan.STATUS_STALLED,
    "STATUS_BROKEN": plan.STATUS_BROKEN, "STATUS_MERGE": plan.STATUS_MERGE,
    "1u << LAB_INDEX_BITS": plan.MAX_SEEDS, "CTR_TAIL": plan.CTR_TAIL, "CTR_ROWS": plan.CTR_ROWS,
    "CTR_HUBS": plan.CTR_HUBS, "WANTED_EDGES": plan.WANTED_EDGES, "WANTED_ROWS": plan.WANTED_ROWS,
    "SCAN_TILE": plan.SCAN_TILE,
}  # fmt: skip


@pytest.fixture(scope="module")
def nvrtc() -> Nvrtc:
    missing = missing_wheels()
    if missing:
        absent(f"STRUCTURES WERE NOT COMPARED: install {' '.join(missing)}")
    return load_nvrtc()


def variant(id_type: str) -> Variant:
    return next(v for v in variants_of(FINISH_CU) if ("ID_T", id_type) in v.macros)


def layout_of(name: str, dtype: np.dtype) -> list[str]:
    assert dtype.fields is not None
    lines = [f'static_assert(sizeof({name}) == {dtype.itemsize}, "size of {name}");']
    for member, (part, offset, *_) in dtype.fields.items():
        # NVRTC has no offsetof; this is what the front end spells it as.
        lines.append(
            f'static_assert(__INTADDR__(&((({name}*)0)->{member})) == {offset}, "offset of {name}.{member}");'
        )
        lines.append(
            f'static_assert(sizeof((({name}*)0)->{member}) == {part.itemsize}, "size of {name}.{member}");'
        )
    return lines


@pytest.mark.parametrize("id_type", ["int", "long"])
def test_layouts_agree(nvrtc, id_type):
    checks = [line for name, dtype in PAIRS.items() for line in layout_of(name, dtype)]
    checks += [f'static_assert({name} == {value}, "{name}");' for name, value in CONSTANTS.items()]
    source = inline_source(FINISH_CU) + "\n".join(checks)
    assert nvrtc.compile(source, variant(id_type).options("sm_90"))


def test_a_different_layout_is_seen(nvrtc):
    wrong = np.dtype([("seeds", "u8"), ("num_seeds", "u8")], align=True)
    source = inline_source(FINISH_CU) + "\n".join(layout_of("Batch", wrong))
    with pytest.raises(CompileError, match=r"size of Batch[\s\S]*size of Batch\.num_seeds"):
        nvrtc.compile(source, variant("int").options("sm_90"))


@pytest.mark.parametrize("name", PAIRS)
def test_no_member_is_missing(name):
    """The same members in the same order, so that a new one cannot be forgotten on one side."""
    body = re.search(rf"^struct {name} \{{(.*?)^\}};", inline_source(FINISH_CU), re.MULTILINE | re.DOTALL)
    assert body is not None
    code = re.sub(r"//.*", "", body.group(1))
    members = re.findall(r"(\w+)\s*(?:\[\w+\])?\s*(?=[;,])", code)
    assert tuple(members) == PAIRS[name].names


def test_the_kernel_argument_is_the_bytes_of_the_structure():
    job = np.zeros(1, plan.JOB)
    argument = plan.as_argument(job)
    assert argument.dtype.itemsize == plan.JOB.itemsize
    job["plan"]["num_nodes"] = 123456789
    at = plan.JOB.fields["plan"][1] + plan.PLAN.fields["num_nodes"][1]
    assert argument.tobytes()[at : at + 8] == (123456789).to_bytes(8, "little")
