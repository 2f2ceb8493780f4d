"""Loading CUDA source: headers inlined, variants declared, a cut cooperative launch noticed. No GPU needed."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from gnnsample_lab.device import kernels
from gnnsample_lab.device.kernels import Variant, all_variants, inline_source, launch_cooperative, variants_of


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        stem, suffix = name.rsplit("_", 1)
        (folder / f"{stem}.{suffix}").write_text(text)
    return folder


def test_headers_are_inlined_once_each(tmp_path):
    write(
        tmp_path,
        main_cu='#include "left.cuh"\n  #  include "right.cuh"\nint main_text;\n',
        left_cuh='#include "base.cuh"\nint left_text;\n',
        right_cuh='#include "base.cuh"\nint right_text;\n',
        base_cuh="int base_text;\n",
    )
    text = inline_source(tmp_path / "main.cu")
    assert [text.count(f"int {name}_text;") for name in ("base", "left", "right", "main")] == [1, 1, 1, 1]
    assert (
        text.index("base_text") < text.index("left_text") < text.index("right_text") < text.index("main_text")
    )
    assert '"' not in text


def test_headers_that_include_each_other_end(tmp_path):
    write(tmp_path, a_cuh='#include "b.cuh"\nint a;', b_cuh='#include "a.cuh"\nint b;')
    assert inline_source(tmp_path / "a.cuh").split() == ["int", "b;", "int", "a;"]


def test_an_edited_header_changes_the_source(tmp_path):
    write(tmp_path, main_cu='#include "h.cuh"\n', h_cuh="#define N 1\n")
    before = inline_source(tmp_path / "main.cu")
    write(tmp_path, h_cuh="#define N 2\n")
    assert inline_source(tmp_path / "main.cu") != before


def test_system_headers_and_comments_stay(tmp_path):
    text = '#include <cooperative_groups.h>\n// see #include "nothing.cuh"\n'
    write(tmp_path, main_cu=text)
    assert inline_source(tmp_path / "main.cu") == text


def test_a_missing_header_is_named(tmp_path):
    write(tmp_path, main_cu='#include "gone.cuh"\n')
    with pytest.raises(FileNotFoundError, match=r"'gone.cuh' included by main.cu"):
        inline_source(tmp_path / "main.cu")


def test_package_headers_are_found_from_anywhere(tmp_path):
    write(tmp_path, main_cu='#include "device/philox.cuh"\n')
    assert "lab_philox" in inline_source(tmp_path / "main.cu")


def test_no_kernel_keeps_an_include_of_the_package():
    for path in {variant.path for variant in all_variants()}:
        source = inline_source(path)
        assert '#include "' not in source
        assert source.count("struct Draws {") <= 1


def test_variants_are_the_cross_product(tmp_path):
    text = "// @variants A=1,2 B=x\n// @variants C=0,1,2\n// @cooperative\n"
    write(tmp_path, main_cu=text, plain_cu="int x;\n// not @cooperative, not @variants D=1\n")
    variants = variants_of(tmp_path / "main.cu")
    assert {v.macros for v in variants} == {(("A", a), ("B", "x"), ("C", c)) for a in "12" for c in "012"}
    assert len(variants) == 6
    assert all(v.needs_cooperative for v in variants)
    (plain,) = variants_of(tmp_path / "plain.cu")
    assert plain.macros == () and not plain.needs_cooperative


def test_every_source_of_the_package_is_listed():
    sources = set(kernels.PACKAGE_ROOT.rglob("*.cu"))
    linked = {path for path in sources if kernels.needs_operator(path)}
    native = {path for path in sources if path.parent.name == "native"}
    assert {v.path for v in all_variants()} >= sources - linked - native
    assert {"individual.cu", "transit.cu", "collective.cu", "unique.cu"} <= {path.name for path in linked}
    assert not {v.path for v in all_variants()} & linked
    assert {v.path.name for v in all_variants() if v.needs_cooperative} == {
        "floor_hops.cu",
        "grid_barrier.cu",
    }


def test_options_forbid_contraction_and_carry_the_macros():
    path = kernels.PACKAGE_ROOT / "sampling" / "neighbors" / "hops" / "hop.cu"
    variant = Variant(path, (("RULE", "3"), ("ID_T", "int")), False)
    options = variant.options("sm_90")
    # A fused multiply-add would round where the CPU twin does not.
    assert "--fmad=false" in options
    assert {"-DRULE=3", "-DID_T=int", "--gpu-architecture=sm_90"} <= set(options)
    assert not any("architecture" in option for option in variant.options())
    assert variant.name == "sampling/neighbors/hops/hop.cu[RULE=3 ID_T=int]"


def test_a_cut_cooperative_grid_is_an_error():
    def cut(grid, block, args):
        warnings.warn("The grid size will be reduced from 9 to 4", stacklevel=2)
        raise AssertionError("went on with a smaller grid")

    with pytest.raises(RuntimeError, match=r"grid \(9,\) was cut"):
        launch_cooperative(cut, (9,), (32,), ())


def test_a_cooperative_launch_that_fits_goes_through():
    seen = []
    launch_cooperative(lambda *launch: seen.append(launch), (4, 2), (64,), ("x",))
    assert seen == [((4, 2), (64,), ("x",))]

    def other(grid, block, args):
        warnings.warn("something else", stacklevel=2)

    with pytest.warns(UserWarning, match="something else"):
        launch_cooperative(other, (1,), (1,), ())
