"""What holds of all CUDA sources: no loop can hang the GPU, and flags for the host follow what they announce.

A kernel that waits forever takes the GPU with it, and Python cannot interrupt it. So every loop that does not count
to a limit says in a comment, ``// bounded: ...``, why it ends.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gnnsample_lab.device.kernels import PACKAGE_ROOT

SOURCES = sorted(p for suffix in ("*.cu", "*.cuh") for p in PACKAGE_ROOT.rglob(suffix))
# The range halves in every round.
_HALVES = re.compile(r"^while \((?:low < high|high - low > 1)\)")


def loops_without_a_limit(text: str) -> list[tuple[int, str]]:
    """Lines (from 1 on) of ``while`` and ``do`` loops but bisections, and of ``for`` loops without a condition."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        code = line.split("//")[0].strip()
        if re.match(r"(?:\} *)?while \(", code):
            if not code.startswith("}") and not _HALVES.match(
                code
            ):  # `} while` ends a `do`, which is found itself
                found.append((number, line))
        elif re.match(r"do\b", code) or re.match(r"for \([^;]*;\s*(?:;|true)", code):
            found.append((number, line))
    return found


def unexplained(text: str) -> list[str]:
    """Those that no comment ``// bounded:`` explains, on the line itself or right above it."""
    lines = text.splitlines()
    missing = []
    for number, line in loops_without_a_limit(text):
        comments = [line]
        at = number - 2
        while at >= 0 and lines[at].strip().startswith("//"):
            comments.append(lines[at])
            at -= 1
        if not any("// bounded:" in comment or "// bounded by chance" in comment for comment in comments):
            missing.append(f"{number}: {line.strip()}")
    return missing


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.relative_to(PACKAGE_ROOT).as_posix())
def test_every_loop_ends(path: Path):
    assert not unexplained(path.read_text(encoding="utf-8"))


def test_a_loop_without_a_reason_is_found():
    source = """
    while (keys[at] != v) at = (at + 1) & mask;
    while (low < high) {
    // bounded: by the number of hops
    while (true) {
    for (;;) {
    for (u64 at = home;; at = at + 1) {
    for (u32 probe = 0; probe < slots; ++probe) {
    do {
    } while (x >= n);
    """
    assert [entry.split(":")[0] for entry in unexplained(source)] == ["2", "6", "7", "9"]


def test_probes_do_not_wrap_without_a_count():
    """The pattern of linear probing, ``at = (at + 1) & mask``, appears in loops that count their probes alone."""
    for path in SOURCES:
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines):
            if re.search(r"at = \(?at \+ 1\)? (?:&|==)", line):
                near = " ".join(lines[max(0, number - 9) : number + 1])
                assert "probe" in near, f"{path.name}:{number + 1}: {line.strip()}"


def test_a_flag_for_the_host_is_written_by_the_thread_that_has_just_fenced():
    """A fence orders the writes of threads met before it against the next write of its own thread. So between
    ``__threadfence_system`` and the flag there may be no meeting of threads, and lanes meet before the fence."""
    fences = 0
    for path in SOURCES:
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines):
            if "__threadfence_system();" in line.split("//")[0]:
                fences += 1
                assert re.search(r"\*\(volatile i64\*\)\S.* = (?:\w+\.)?(?:flag|tag);", lines[number + 1]), (
                    path.name
                )
    assert fences == 7


def test_totals_of_all_lanes_are_met_before_the_fence():
    (finish,) = (path for path in SOURCES if path.name == "finish.cu")
    body = finish.read_text(encoding="utf-8").split("void report(")[1].split("\n}\n")[0]
    code = re.sub(r"//.*", "", body)
    meet, fence, flag = (
        code.index(part) for part in ("__syncwarp()", "__threadfence_system()", "totals + 63")
    )
    assert meet < fence < flag


def test_a_partial_plan_has_all_that_draws_read():
    """Draws for ranks fill a plan of their own: a member that the draws read and nobody sets would be any address."""
    read = (PACKAGE_ROOT / "sampling/neighbors/hops/draw.cuh").read_text(encoding="utf-8")
    filled = (PACKAGE_ROOT / "distributed/sampling/gpu/csp_draw.cu").read_text(encoding="utf-8")
    members = set(re.findall(r"\bp\.([a-z_]+)", read)) | {"indices"}
    assert {"seed", "indptr", "prefix", "available", "guide"} <= members
    missing = {name for name in members if f"task.source.{name} =" not in filled}
    assert not missing, f"csp_draw.cu sets no {', '.join(sorted(missing))} of what draw.cuh reads"
