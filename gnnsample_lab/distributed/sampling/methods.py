"""The ladder: ways to sample neighbours whose lists another rank has, the naive ones first."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Method:
    """One way to sample from a graph in parts.

    Attributes:
        line: what it does, in one line.
        source: where it is from.
        needs: what it needs beside a part for each rank.
        between_hosts: whether parts may lie on several hosts; otherwise each host holds all parts between its ranks.
        cpu, gpu: module with ``engine(setup)`` for ranks on CPUs and on GPUs, below this package.
        spills: whether lists of a rank's part may leave its GPU for host memory (``topology_bytes``).
    """

    line: str
    source: str
    needs: str
    between_hosts: bool
    cpu: str
    gpu: str
    spills: bool = False


METHODS: dict[str, Method] = {
    "pull": Method(
        "the lists of remote vertices are fetched whole from their owners, and drawn from here",
        "DSP's Pull Data (sections 4.1 and 7.3)", "nothing", True, "cpu.pull", "gpu.csp",
    ),
    "uva": Method(
        "the whole topology lies in host memory, and each pick reads it: requests of 50 bytes for 32",
        "DGL-UVA, Quiver (DSP, section 1)", "all parts as files", False, "cpu.direct", "gpu.direct",
    ),
    "csp": Method(
        "collective sampling: vertices go to their owners, who draw, and picks come back; exact sizes",
        "DSP (section 4)", "nothing", True, "cpu.push", "gpu.csp", spills=True,
    ),
    "csp-async": Method(
        "csp without barriers: each request is served by itself as it arrives",
        "DSP's rejected variant (section 4.1)", "nothing", True, "cpu.push_async", "gpu.csp",
    ),
    "csp-fixed": Method(
        "csp with buffers of fixed capacity: no sizes are exchanged or read, one CUDA graph on GPUs",
        "ours", "scratch_bytes for the buffers", True, "cpu.push_fixed", "gpu.csp", spills=True,
    ),
    "direct": Method(
        "the sampling kernel reads its peers' memory over NVLink: no collective",
        "ours", "all parts as files, GPUs that reach each other", False, "cpu.direct", "gpu.direct",
    ),
    "direct-cached": Method(
        "direct, with vertex records on every rank and the lists that save most reads copied",
        "ours", "all parts as files, cache_bytes for lists", False, "cpu.direct", "gpu.direct", spills=True,
    ),
}  # fmt: skip
"""Every method, by name."""
SPILLING = tuple(name for name, method in METHODS.items() if method.spills)
"""Methods that take ``topology_bytes``."""


def methods() -> dict[str, str]:
    """Every method's name with one line on how it samples, where it is from, and where parts may lie."""
    return {
        name: f"{m.line} ({m.source}; {'any hosts' if m.between_hosts else 'within a host'})"
        for name, m in METHODS.items()
    }
