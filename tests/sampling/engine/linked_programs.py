"""Many random programs in one CUDA module: a variable of the module says whose ``next`` its kernels call."""

from __future__ import annotations

import ast
import copy
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.sampling.engine.language import link
from gnnsample_lab.sampling.engine.language.compile import Operator
from tests.sampling.engine.programs import Program
from tests.sampling.engine.recorded_run import Outcome, by_python, compiled, prepared

Job = tuple[int, Program, str, str]
"""A program's number, the program, a folder for its file, and what it is compiled for, such as ``"sm_90"``."""

CHOSEN = "lab_chosen_program"
_ARGUMENTS = {"lab_next": "void* ctx, i64 step", "lab_step_transits": "void* ctx, i64 step, i64 k"}


def compile_functions(operator: Operator, number: int, arch: str = "sm_90") -> tuple[bytes, ...]:
    """LTO-IR of the program's functions, under names that no other number has."""
    from numba import cuda, types

    own = {name: f"{name}_{number}" for name in operator.helpers}
    modules = []
    for filename, module in copy.deepcopy(operator.modules):
        for node in ast.walk(module):
            if isinstance(node, ast.Name):
                node.id = own.get(node.id, node.id)
            elif isinstance(node, ast.FunctionDef):
                node.name = own.get(node.name, node.name)
        modules.append((filename, module))
    renamed = dataclasses.replace(operator, modules=tuple(modules), helpers=tuple(own.values()))
    functions = renamed.functions(link.declarations(), cuda.jit(device=True, inline="always"))
    target = (int(arch[3:-1]), int(arch[-1]))
    codes = []
    for name, function in functions.items():
        function.__qualname__ = f"{name}_{number}"
        signature = types.int64(types.voidptr, *[types.int64] * _ARGUMENTS[name].count("i64"))
        code, _ = cuda.compile(
            function, signature, device=True, abi="c", abi_info={"abi_name": f"{name}_{number}"}, output="ltoir",
            cc=target,
        )  # fmt: skip
        codes.append(bytes(code))
    return tuple(codes)


def build(
    operator: Operator, codes: Mapping[int, tuple[bytes, ...]], source_name: str, macros: dict[str, int | str],
    arch: str = "sm_90",
) -> bytes:  # fmt: skip
    """The cubin of a kernel file with the functions of all programs.

    Args:
        operator: of any of the programs, which share their macros. codes: number -> :func:`compile_functions`.
    """
    lines = [f"__device__ volatile int {CHOSEN} = 0;"]
    for name, arguments in _ARGUMENTS.items():
        given = ", ".join(part.split()[-1] for part in arguments.split(", "))
        having = [n for n, code in codes.items() if name == "lab_next" or len(code) > 1]
        lines += [f'extern "C" __device__ i64 {name}_{n}({arguments});' for n in having]
        cases = " ".join(f"case {n}: return {name}_{n}({given});" for n in having)
        lines.append(
            f'extern "C" __device__ i64 {name}({arguments}) {{ switch ({CHOSEN}) {{ {cases} }} return -1; }}'
        )
    source = link._source(operator, source_name, macros) + "\n".join(lines) + "\n"
    kernels = link._compile_kernels(source, source_name, arch)
    return link.join([kernels, *(part for code in codes.values() for part in code)], source_name, arch)


def compiled_program(job: Job) -> tuple[int, tuple[bytes, ...]]:
    """In a worker: LTO-IR of a program."""
    number, program, folder, arch = job
    return number, compile_functions(prepared(program, Path(folder))[1], number, arch)


def expected_of(job: Job) -> tuple[int, Outcome | None, tuple[bytes, ...]]:
    """In a worker: what Python and the CPU make of a program, which agree, and its LTO-IR; None where it is refused."""
    number, program, folder, arch = job
    app, operator = prepared(program, Path(folder))
    if operator is None:
        return number, None, ()
    outcome = by_python(program, app, operator)
    try:
        outcome.check(compiled(program, app))
    except AssertionError as difference:
        raise AssertionError(f"{program!r}\n{difference}") from None
    return number, outcome, compile_functions(operator, number, arch)


def built(
    job: tuple[Any, Operator, dict[int, tuple[bytes, ...]], str, dict[str, int | str], str],
) -> tuple[Any, bytes]:
    """In a worker: a key, and the cubin of :func:`build` for what follows it."""
    key, operator, codes, source_name, macros, arch = job
    return key, build(operator, codes, source_name, macros, arch)


def choose(module: Any, number: int) -> None:
    """Let the kernels of a loaded module call program ``number``."""
    import cupy

    where = module.get_global(CHOSEN)
    cupy.ndarray((1,), np.int32, where).fill(number)
    cupy.cuda.get_current_stream().synchronize()
