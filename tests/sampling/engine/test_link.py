"""Applications link with the kernels, on a machine without a GPU, and nothing of the context reaches memory."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.device.kernels import inline_source, variants_of
from gnnsample_lab.sampling.engine import plan as gpu_plan
from gnnsample_lab.sampling.engine.language import link
from gnnsample_lab.sampling.engine.language.accessors import ACCESSORS
from gnnsample_lab.sampling.engine.language.compile import compile_operator
from gnnsample_lab.sampling.engine.steps import fused
from tests.sampling.engine.toy_apps import APPS, Ending, Walk, toy_graph

needs_wheels = pytest.mark.skipif(
    link.missing() is not None, reason=f"*** APPLICATIONS WERE NOT LINKED: {link.missing()} ***"
)
CONTEXT = link.FOLDER / "context.cuh"
INDIVIDUAL = link.FOLDER / "steps" / "individual.cu"
KINDS = {"ctx": "void*", "i8": "i64", "i4": "int", "f8": "double"}
WALK = {"WALK": 1, "ENDLESS": 0, "SIZES": 0}


def operator_of(app):
    graph = toy_graph()
    app.prepare(graph)
    return compile_operator(app, graph)


def kernels_of(cubin: bytes) -> set[str]:
    return {name.decode() for name in re.findall(rb"\.text\.(\w+)", cubin)}


def tool(name: str) -> str | None:
    beside = [Path(p) / "nvidia" / "cu13" / "bin" / name for p in sys.path]
    return shutil.which(name) or next((str(p) for p in beside if p.exists()), None)


def test_the_header_has_every_accessor_with_its_signature():
    text = inline_source(CONTEXT)
    for name, (result, arguments) in ACCESSORS.items():
        found = re.search(rf'extern "C" __device__ ([\w ]+?) {name}\(([^)]*)\)', text)
        assert found, name
        kinds = [re.sub(r"\s*\w+$", "", part.strip()) for part in found.group(2).split(",")]
        assert found.group(1) == KINDS[result], name
        assert kinds == [KINDS[a] for a in arguments], name
    defined = set(re.findall(r'extern "C" __device__ [\w ]+? (lab_\w+)\(void\* ctx', text))
    assert defined - {"lab_next", "lab_step_transits"} == set(ACCESSORS)


@needs_wheels
def test_a_definition_of_other_types_than_declared_does_not_compile(monkeypatch):
    declared = link.cuda_declarations()
    wrong = declared.replace("lab_degree(void*, long long, int)", "lab_degree(void*, long long, long long)")
    assert wrong != declared
    monkeypatch.setattr(link, "cuda_declarations", lambda: wrong)
    with pytest.raises(RuntimeError, match=r"individual\.cu for sm_90[\s\S]*lab_degree"):
        link._compile_kernels(
            link._source(operator_of(Walk()), "steps/individual.cu", {}), "individual.cu", "sm_90"
        )


@needs_wheels
@pytest.mark.parametrize("id_type", ["int", "long"])
@pytest.mark.parametrize(
    ("struct", "dtype", "macros"),
    [("AppPlan", gpu_plan.APP_PLAN, {}), ("Walk", fused.WALK, WALK)],
    ids=["AppPlan", "Walk"],
)
def test_host_and_kernels_agree_on_structures(struct, dtype, macros, id_type):
    checks = [f"static_assert(sizeof({struct}) == {dtype.itemsize});"]
    for member, (part, offset, *_) in dtype.fields.items():
        checks.append(f"static_assert(__INTADDR__(&((({struct}*)0)->{member})) == {offset});")
        checks.append(f"static_assert(sizeof((({struct}*)0)->{member}) == {part.itemsize});")
    head = "".join(f"#define {k} {v}\n" for k, v in {"ID_T": id_type, **macros}.items())
    link._compile_kernels(head + inline_source(INDIVIDUAL) + "\n".join(checks), "checks.cu", "sm_90")
    with pytest.raises(RuntimeError, match="static"):
        wrong = f"static_assert(sizeof({struct}) == {dtype.itemsize + 8});"
        link._compile_kernels(head + inline_source(INDIVIDUAL) + wrong, "checks.cu", "sm_90")


@needs_wheels
@pytest.mark.slow
@pytest.mark.parametrize("name", [*APPS, "ending"])
def test_every_application_links(name):
    operator = operator_of({**APPS, "ending": Ending()}[name])
    cubin = link.build(operator, "steps/individual.cu", {"SLOTS": 4, "WEIGHTED": 1, "ID_T": "long"})
    assert cubin[:4] == b"\x7fELF"
    assert kernels_of(cubin) == {"transits", "sizes"} | (set() if operator.collective else {"sample"})


OPERATOR_SOURCES = sorted(
    p for p in link.FOLDER.rglob("*.cu") if re.search(r"^// @operator", p.read_text(), re.M)
)
# With individual.cu every application links by default, above; other sources with these wait for `make test-all`.
LATER = ("hops", "odds", "together")
LINKED = [
    pytest.param(
        source, name, marks=[pytest.mark.exhaustive] if name in LATER else [], id=f"{source.name}-{name}"
    )
    for source in OPERATOR_SOURCES
    for name in ("hops", "odds", "weighted", "together", "importance")
    if source.name == "unique.cu" or APPS[name].is_collective == (source.name == "collective.cu")
]


@needs_wheels
@pytest.mark.slow
@pytest.mark.parametrize(("source", "name"), LINKED)
def test_every_source_links(source, name):
    variants = variants_of(source)
    for variant in {variants[0], variants[-1]}:
        macros = {**dict(variant.macros), "WEIGHTED": 1}
        assert kernels_of(
            link.build(operator_of(APPS[name]), source.relative_to(link.FOLDER).as_posix(), macros)
        )


@needs_wheels
@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_100"])
def test_other_architectures_link(arch):
    assert "walk" in kernels_of(link.build(operator_of(Walk()), "steps/individual.cu", WALK, arch))


@needs_wheels
@pytest.mark.parametrize("name", ["walk", "weighted", "frontier"])
def test_a_walk_keeps_everything_in_registers(name, tmp_path):
    """No spills; accessors and user code are inlined into the kernel, all but the draw that one word may not decide."""
    dump = tool("cuobjdump")
    if dump is None or tool("nvdisasm") is None:
        pytest.skip(
            "*** MACHINE CODE WAS NOT READ: install nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm ***"
        )
    path = tmp_path / "walk.cubin"
    path.write_bytes(link.build(operator_of(APPS[name]), "steps/individual.cu", {**WALK, "WEIGHTED": 1}))
    folder = str(Path(str(tool("nvdisasm"))).parent)
    sass = subprocess.run(
        [dump, "-sass", "-fun", "walk", str(path)], capture_output=True, text=True, check=True,
        env={"PATH": f"{folder}:/usr/bin:/bin"},
    ).stdout  # fmt: skip
    assert "LDG" in sass
    assert not re.findall(r"\b(?:LDL|STL)\b", sass)
    assert len(set(re.findall(r"\bCALL\S* (\S+)", sass))) == 1


@needs_wheels
def test_products_and_sums_of_floats_are_rounded_one_by_one():
    """Fused, they would differ from the CPU's and from Python's."""
    from cuda.bindings import nvjitlink

    class Fused(Walk):
        def next(self, s, transits, src_edges, step, rng):
            x, y, z = rng.uniform(), rng.uniform(), rng.uniform()
            return transits[0] if x * y + z > 0.75 else src_edges[0]

    def operations(*options):
        handle = nvjitlink.create(len(options) + 2, ["-arch=sm_90", "-ptx", *options])
        try:
            for code in codes:
                nvjitlink.add_data(handle, nvjitlink.InputType.LTOIR, code, len(code), "part")
            nvjitlink.complete(handle)
            ptx = bytearray(nvjitlink.get_linked_ptx_size(handle))
            nvjitlink.get_linked_ptx(handle, ptx)
        finally:
            nvjitlink.destroy(handle)
        return set(re.findall(r"\b(?:fma|mul|add)\.\S*f64\b", ptx.decode()))

    operator = operator_of(Fused())
    source = link._source(operator, "steps/individual.cu", {})
    codes = [
        link._compile_kernels(source, "individual.cu", "sm_90"),
        *link._compile_functions(operator, "sm_90"),
    ]
    assert operations(*link._LINK_OPTIONS) == {"mul.rn.f64", "add.rn.f64"}
    assert "fma.rn.f64" in operations("-lto", "-fma=1", "-O3")


@needs_wheels
def test_what_does_not_compile_is_an_error_of_the_application():
    operator = operator_of(Walk())
    broken = ast.parse("def lab_next(ctx, i_step):\n    return lab_degree(ctx)")
    modules = (*operator.modules[:-1], (operator.filename, ast.increment_lineno(broken, operator.def_line)))
    with pytest.raises(lab.SamplingAppError, match=r"does not compile[\s\S]*toy_apps\.py"):
        link.build(dataclasses.replace(operator, modules=modules, key="broken"), "steps/individual.cu")


@needs_wheels
def test_faults_of_our_own_source_name_the_file():
    with pytest.raises(RuntimeError, match=r"individual\.cu for sm_90"):
        link.build(operator_of(Walk()), "steps/individual.cu", {"ID_T": "no_such_type"})


def test_missing_wheels_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    with pytest.raises(RuntimeError, match=r"gnnsample_lab\[cuda13\]"):
        link.build(operator_of(Walk()), "steps/individual.cu")


@needs_wheels
def test_a_numpy_that_the_compiler_does_not_know_is_named_and_not_the_users_function(monkeypatch):
    load = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "numba.cuda.np.arrayobj":
            raise AttributeError("module 'numpy' has no attribute 'row_stack'")
        return load(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(RuntimeError, match=r"does not work with NumPy .*row_stack.*pip install 'numpy<2\.5'"):
        link.build(operator_of(Walk()), "steps/individual.cu")


def test_cache_keys_tell_apart_what_differs():
    walk, source = operator_of(Walk()), "source"
    keys = {
        link.cache_key(walk, source, "sm_90"), link.cache_key(walk, source, "sm_80"),
        link.cache_key(walk, "other", "sm_90"), link.cache_key(operator_of(Ending()), source, "sm_90"),
    }  # fmt: skip
    assert len(keys) == 4
    assert link.cache_key(operator_of(Walk()), source, "sm_90") in keys
    assert link._source(walk, "steps/individual.cu", {"SLOTS": 1}) != link._source(
        walk, "steps/individual.cu", {"SLOTS": 4}
    )


def test_cache_keys_follow_the_code_that_links(monkeypatch):
    walk, found = operator_of(Walk()), []
    for key in ("one", "two", None, None):
        link._own_key.cache_clear()
        monkeypatch.setattr(link.jit_cache, "content_key", lambda file, key=key: key)
        found.append(link.cache_key(walk, "source", "sm_90"))
        assert link.cache_key(walk, "source", "sm_90") == found[-1]
    link._own_key.cache_clear()
    assert len(set(found)) == 4, "code that may differ from its files shares nothing with other processes"


def test_a_full_disk_moves_a_cubin_to_a_folder_of_the_process(tmp_path, monkeypatch):
    write = link.replace_file

    def full(path, data):
        if path.parent == tmp_path:
            raise OSError(28, "No space left on device")
        write(path, data)

    monkeypatch.setattr(link, "replace_file", full)
    kept = link._keep(tmp_path / "a.cubin", b"whole")
    assert kept.parent != tmp_path and kept.read_bytes() == b"whole"


def test_files_appear_whole_or_not_at_all(tmp_path):
    link.replace_file(tmp_path / "a.cubin", b"whole")
    assert [p.name for p in tmp_path.iterdir()] == ["a.cubin"]
    with pytest.raises(TypeError):
        link.replace_file(tmp_path / "b.cubin", "not bytes")
    assert [p.name for p in tmp_path.iterdir()] == ["a.cubin"]


def test_the_kernel_argument_follows_the_plan():
    from gnnsample_lab.sampling.neighbors.plan import as_argument

    plan = np.zeros(1, gpu_plan.APP_PLAN)
    argument = as_argument(plan)
    plan["step"] = 77
    at = gpu_plan.APP_PLAN.fields["step"][1]
    assert argument.tobytes()[at : at + 8] == (77).to_bytes(8, "little")
