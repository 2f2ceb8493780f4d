"""Listings show the lines that are compiled, and nothing that was copied once."""

from __future__ import annotations

import html
import re

import pytest
from gnnsample_widgets import show_code
from gnnsample_widgets.lesson import listing

from gnnsample_lab.device.kernels import PACKAGE_ROOT, inline_source


def test_markers_and_pseudocode_name_the_same_mechanisms() -> None:
    assert set(listing._marked()) == set(listing.MECHANISMS)


@pytest.mark.parametrize("name", listing.MECHANISMS)
def test_about_ten_lines_of_the_shipped_source(name: str) -> None:
    shown = show_code(name)
    lines = shown.code.splitlines()
    assert 4 <= len(lines) <= 19 and not re.search(r"(?://|#) (?:show|end):", shown.code)
    source = (PACKAGE_ROOT / shown.file).read_text(encoding="utf-8").splitlines()
    there = source[shown.first_line - 1 : shown.first_line - 1 + len(lines)]
    assert [line.strip() for line in there] == [line.strip() for line in lines]
    assert min(len(line) - len(line.lstrip()) for line in lines if line and not line.startswith("#")) == 0
    assert 3 <= len(shown.pseudocode.splitlines()) <= 12 and len(shown.place) > 10
    page = shown._repr_html_()
    assert all(html.escape(line) in page for line in lines) and html.escape(shown.place) in page
    assert f">{name[0].upper()}{name[1:]}<" in html.unescape(page), "GPUs are no gpus"
    assert shown.code in repr(shown) and shown.pseudocode in repr(shown)


def test_what_is_shown_is_what_the_kernel_is_compiled_from() -> None:
    shown = show_code("claim a slot")
    compiled = inline_source(PACKAGE_ROOT / "sampling/neighbors/queue/block.cu")
    assert all(line.strip() in compiled for line in shown.code.splitlines())
    assert "atomicAdd(counters + CTR_HEAD" in shown.code


@pytest.mark.parametrize("mechanism", ["claim a slot", "insert into Fused-Map", "grow a frontier"])
def test_the_lines_hold_the_atomic_that_the_mechanism_is_about(mechanism: str) -> None:
    assert re.search(r"atomic\w+\(|lab_insert\(", show_code(mechanism).code)


def test_a_marker_without_a_partner_is_found(tmp_path, monkeypatch) -> None:
    for text in ("// show: a\n", "// end: a\n", "// show: a\n// show: a\n// end: a\n"):
        (tmp_path / "kernel.cu").write_text(text.replace("\n", "\nint x;\n"))
        monkeypatch.setattr(listing, "PACKAGE_ROOT", tmp_path)
        with pytest.raises(RuntimeError, match=r"kernel\.cu.*'a'"):
            listing._marked.__wrapped__()


def test_a_wrong_name_is_answered_with_the_right_ones() -> None:
    with pytest.raises(ValueError, match=r"name .*claim a slot"):
        show_code("claim")
    with pytest.raises((TypeError, ValueError), match="name"):
        show_code(3)  # type: ignore[arg-type]
