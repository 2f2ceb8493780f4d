"""How much of the host this process may use: on a shared host, or in a container, less than there is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

UNKNOWN_BYTES = 4 << 30
"""Free memory where the system does not tell, as outside Linux."""
_ROOT = Path("/")
_GROUPS = (
    ("", "memory.max", "memory.current", ""),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
)
"""Both versions of Linux's control groups: the controller, files with the limit and with what is taken, and how names
in ``memory.stat`` begin that count a group with all that it holds."""


def usable_cores() -> int:
    """Cores that the calling thread may run on now; at least 1."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_host_bytes() -> int:
    """Host memory, in bytes, that can be taken without swapping, as the system estimates it.

    A container that may take less than the host has, as on Binder, counts what is left of its own: who takes more is
    ended without a word.
    """
    return max(0, min([_free_of_host(), *_free_of_groups()]))


def _free_of_host() -> int:
    for name, kib in _fields(_ROOT / "proc/meminfo", ":"):
        if name == "MemAvailable":
            return kib << 10
    return UNKNOWN_BYTES


def _free_of_groups() -> Iterator[int]:
    """What is left of the limit of each control group that the process is in.

    Pages of files count as free, as in what the host tells: the kernel drops them before it ends a process.
    """
    for controller, limit, used, begins in _GROUPS:
        for folder in _folders(controller):
            try:
                most, taken = (int((folder / name).read_text(encoding="ascii")) for name in (limit, used))
            except (OSError, ValueError):  # no such group, or "max"
                continue
            pages = dict(_fields(folder / "memory.stat", " "))
            yield most - taken + sum(pages.get(f"{begins}{kind}_file", 0) for kind in ("active", "inactive"))


def _folders(controller: str) -> Iterator[Path]:
    """Folders of the process's group and of all groups around it; in a container the outermost is the container's."""
    mounted = _ROOT / "sys/fs/cgroup" / controller
    yield mounted
    try:
        groups = (_ROOT / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for group in groups:
        _, controllers, path = group.split(":", 2)
        if controller in controllers.split(","):
            inside = mounted / path.lstrip("/")
            yield from (folder for folder in (inside, *inside.parents) if mounted in folder.parents)


def _fields(path: Path, separator: str) -> Iterator[tuple[str, int]]:
    """Names and numbers of a file of the kernel's with one of each a line; none where there is no such file."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return
    for line in lines:
        name, _, rest = line.partition(separator)
        number = rest.split()
        if number and number[0].isdigit():
            yield name, int(number[0])
