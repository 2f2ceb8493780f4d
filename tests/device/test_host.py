"""How much of the host a process may use, on made-up files of the kernel's."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnsample_lab.device import host

GIB = 2**30


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with 20 GiB free, whose process is in the outermost control group, without a limit."""
    monkeypatch.setattr(host, "_ROOT", tmp_path)
    write(
        tmp_path / "proc/meminfo",
        f"MemTotal: {32 * 2**20} kB\nMemAvailable:   {20 * 2**20} kB\nHugePages: 0\n",
    )
    write(tmp_path / "proc/self/cgroup", "0::/\n")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def group(folder: Path, limit: str, used: int, files: int) -> None:
    """A control group of version 2, with as many bytes of files that were read lately as of others."""
    write(folder / "memory.max", f"{limit}\n")
    write(folder / "memory.current", f"{used}\n")
    half = files // 2
    write(
        folder / "memory.stat",
        f"anon {used - files}\nactive_file {half}\nshmem 7\ninactive_file {files - half}\n",
    )


def test_without_a_limit_it_is_what_the_host_has(root: Path) -> None:
    assert host.free_host_bytes() == 20 * GIB
    group(root / "sys/fs/cgroup", "max", 3 * GIB, 0)
    assert host.free_host_bytes() == 20 * GIB


def test_a_container_has_what_is_left_of_its_own(root: Path) -> None:
    group(root / "sys/fs/cgroup", str(2 * GIB), GIB, GIB // 4)
    assert host.free_host_bytes() == GIB + GIB // 4


def test_the_tightest_of_all_groups_around_the_process_counts(root: Path) -> None:
    write(root / "proc/self/cgroup", "0::/user/job/step\n")
    group(root / "sys/fs/cgroup/user", str(9 * GIB), GIB, 0)
    group(root / "sys/fs/cgroup/user/job", str(5 * GIB), 2 * GIB, 0)
    group(root / "sys/fs/cgroup/user/job/step", "max", 2 * GIB, 0)
    group(root / "sys/fs/cgroup/other", str(GIB), GIB, 0)
    assert host.free_host_bytes() == 3 * GIB


def test_groups_of_the_first_version_count_as_well(root: Path) -> None:
    write(root / "proc/self/cgroup", "9:cpu,cpuacct:/a\n4:memory:/docker/c0\n")
    for folder, limit in (("", 2**63 - 4096), ("docker/c0", 4 * GIB)):
        there = root / "sys/fs/cgroup/memory" / folder
        write(there / "memory.limit_in_bytes", str(limit))
        write(there / "memory.usage_in_bytes", str(GIB))
        write(
            there / "memory.stat", f"inactive_file 1\ntotal_active_file 0\ntotal_inactive_file {GIB // 2}\n"
        )
    assert host.free_host_bytes() == 3 * GIB + GIB // 2


def test_a_group_beyond_its_limit_has_nothing(root: Path) -> None:
    group(root / "sys/fs/cgroup", str(GIB), 2 * GIB, 0)
    assert host.free_host_bytes() == 0


def test_a_system_that_does_not_tell(root: Path) -> None:
    (root / "proc/meminfo").unlink()
    (root / "proc/self/cgroup").unlink()
    assert host.free_host_bytes() == host.UNKNOWN_BYTES
