"""Every kernel compiles for sm_70 to sm_120, on a machine without a GPU.

A source has up to a few hundred variants, at a second or more each and architecture. So the oldest and the newest
architecture, where support ends and every branch on the architecture is taken, share the fewest variants that hold
every macro value. Those of the other, and the architectures between, which take turns at them, wait for
``make test-all``. ``LAB_ALL_VARIANTS=1`` compiles every variant for every one (hours). What has compiled once is
remembered in pytest's cache by the hash of source, options and compiler.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from gnnsample_lab.device.kernels import PACKAGE_ROOT, Variant, all_variants, needs_operator
from tests.conftest import absent
from tests.nvrtc_compile import CompileError, Nvrtc, load_nvrtc, missing_wheels

OLDEST, NEWEST = 70, 120
ARCHITECTURES = (70, 75, 80, 86, 89, 90, 100, 120)
VARIANTS = all_variants()
SOURCES = sorted({variant.path for variant in VARIANTS})


@pytest.fixture(scope="module")
def nvrtc() -> Nvrtc:
    missing = missing_wheels()
    if missing:
        absent(f"KERNELS WERE NOT COMPILED: install {' '.join(missing)}")
    return load_nvrtc()


def covering(variants: Sequence[Variant]) -> list[Variant]:
    """Few variants that together hold every value of every macro (greedily chosen)."""
    still_open = {macro for variant in variants for macro in variant.macros}
    chosen = list(variants[:1])
    still_open.difference_update(chosen[0].macros)
    while still_open:
        best = max(variants, key=lambda variant: len(still_open.intersection(variant.macros)))
        still_open.difference_update(best.macros)
        chosen.append(best)
    return chosen


def chosen_for(architecture: int, variants: Sequence[Variant]) -> list[Variant]:
    """Of :func:`covering`, every second for the oldest architecture and the others for the newest."""
    if os.environ.get("LAB_ALL_VARIANTS"):
        return list(variants)
    few = covering(variants)
    if architecture in (OLDEST, NEWEST):
        return few[int(architecture == NEWEST) :: 2] or few
    return [few[ARCHITECTURES.index(architecture) % len(few)]]


def compile_all(nvrtc: Nvrtc, variants: Iterable[Variant], architecture: int, done: Path) -> None:
    failures = []
    for variant in variants:
        source, options = variant.source_text(), variant.options(f"sm_{architecture}")
        key = hashlib.sha256("\0".join([nvrtc.version, source, *options]).encode()).hexdigest()
        if (done / key).exists():
            continue
        try:
            assert nvrtc.compile(source, options, variant.path.name)[:4] == b"\x7fELF"
        except CompileError as error:
            failures.append(f"{variant.name} for sm_{architecture}:\n{error}")
        else:
            (done / key).touch()
    assert not failures, "\n\n".join(failures[:3]) + f"\n\n{len(failures)} variants failed"


def test_there_are_kernels() -> None:
    alone = {path.name for path in PACKAGE_ROOT.rglob("*.cu") if not needs_operator(path)}
    assert {path.name for path in SOURCES} >= alone
    assert "individual.cu" not in alone and "index.cu" in alone


@pytest.mark.slow
@pytest.mark.parametrize(
    "architecture",
    [
        pytest.param(
            number, marks=[] if number in (OLDEST, NEWEST) else [pytest.mark.exhaustive], id=f"sm_{number}"
        )
        for number in ARCHITECTURES
    ],
)
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_kernels_compile(source: Path, architecture: int, nvrtc: Nvrtc, pytestconfig: pytest.Config) -> None:
    assert architecture in nvrtc.architectures
    variants = [variant for variant in VARIANTS if variant.path == source]
    compile_all(nvrtc, chosen_for(architecture, variants), architecture, pytestconfig.cache.mkdir("kernels"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("architecture", (OLDEST, NEWEST), ids=lambda number: f"sm_{number}")
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_kernels_compile_with_every_macro_value(
    source: Path, architecture: int, nvrtc: Nvrtc, pytestconfig: pytest.Config
) -> None:
    variants = [variant for variant in VARIANTS if variant.path == source]
    compile_all(nvrtc, covering(variants), architecture, pytestconfig.cache.mkdir("kernels"))


def test_covering_holds_every_value_with_few_variants() -> None:
    axes = {"A": "01", "B": "012", "C": "01"}
    variants = [
        Variant(Path("x.cu"), tuple(zip(axes, values, strict=True)), False)
        for values in itertools.product(*axes.values())
    ]
    every_value = {(name, value) for name, values in axes.items() for value in values}
    assert {macro for variant in covering(variants) for macro in variant.macros} == every_value
    assert len(covering(variants)) == 3
    assert len(covering([Variant(Path("x.cu"), (), False)])) == 1
    ends = [variant for architecture in (OLDEST, NEWEST) for variant in chosen_for(architecture, variants)]
    assert {macro for variant in ends for macro in variant.macros} == every_value and len(ends) == 3
    alone = [Variant(Path("x.cu"), (), False)]
    assert chosen_for(OLDEST, alone) == chosen_for(NEWEST, alone) == alone
    between = [chosen_for(architecture, variants) for architecture in ARCHITECTURES[1:-1]]
    assert {macro for (variant,) in between for macro in variant.macros} == every_value


def test_a_broken_kernel_is_reported(nvrtc: Nvrtc) -> None:
    with pytest.raises(CompileError, match="undeclared_thing"):
        nvrtc.compile('extern "C" __global__ void k() { undeclared_thing(); }', ["-arch=sm_90"])


@pytest.mark.parametrize("architecture", (OLDEST, NEWEST), ids=lambda number: f"sm_{number}")
def test_toolkit_headers_are_found(architecture: int, nvrtc: Nvrtc) -> None:
    source = """
    #include <cooperative_groups.h>
    extern "C" __global__ void k(int* x) {
        cooperative_groups::this_grid().sync();
        auto tile = cooperative_groups::tiled_partition<16>(cooperative_groups::this_thread_block());
        x[tile.thread_rank()] = tile.shfl_down((int)threadIdx.x, 1);
    }"""
    assert nvrtc.compile(source, ["-std=c++17", f"-arch=sm_{architecture}"])
