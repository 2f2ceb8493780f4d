"""What is compiled ahead are kernels that exist, with macros that their sources take."""

from __future__ import annotations

import re

from gnnsample_lab.bench import compiling
from gnnsample_lab.device import kernels


def test_every_job_names_a_kernel_of_its_source_and_macros_that_it_declares(monkeypatch) -> None:
    found = []
    monkeypatch.setattr(compiling, "_compile_all", lambda jobs: found.extend(jobs) or len(jobs))
    assert compiling.compile_ahead() > 30 and compiling.compile_variants() > 100
    assert {path for path, _ in found} == set(compiling._ANY_KERNEL)
    for path, macros in set(found):
        source = (kernels.PACKAGE_ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"\b{compiling._ANY_KERNEL[path]}\(", source), path
        (declared,) = re.findall(r"@variants (.*)", source)
        assert {name for name, _ in macros} <= {part.split("=")[0] for part in declared.split()}, (
            path,
            macros,
        )


def test_jobs_are_compiled_in_other_processes_and_counted(monkeypatch) -> None:
    monkeypatch.setattr(compiling, "_compile", print)
    assert compiling._compile_all([("a.cu", ()), ("b.cu", ())]) == 2
