"""Compile a CUDA source for the host and run its kernels there, without a GPU (``on_host.h``)."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.device.kernels import PACKAGE_ROOT, inline_source

HEADER = Path(__file__).with_name("on_host.h")
# What a source says in the GPU's own instructions.
_INSTRUCTIONS = (
    (
        r'asm volatile\("mov\.u64[^;]*;[^;]*;',
        "t = std::chrono::steady_clock::now().time_since_epoch().count();",
    ),
    (r'asm\("mov\.u32 %0, %%smid;[^;]*;', "sm = blockIdx.x % 16;"),
    (r'asm volatile\("ld\.acquire[^;]*;[^;]*;', "value = acquire_on_host(address);"),
    (r'asm volatile\("st\.release[^;]*;[^;]*;', "__atomic_store_n(address, value, __ATOMIC_RELEASE);"),
    (r'asm volatile\("st\.global[^;]*;[^;]*;|asm volatile\("cp\.async\.wait_all;[^;]*;', ";"),
    (r'asm volatile\("cp\.async\.cg[^;]*;[^;]*;', "*(uint4*)to = *(const uint4*)from;"),
    *(
        (
            rf'asm(?: volatile)?\(\w+ "\.{kind} [^;]*;" : "=[rh]"\((\w+)(?:\.x)?\)[^;]*"l"\((\w+)\)\);',
            rf"\1 = *(const {c_type}*)\2;",
        )
        for kind, c_type in (("v4.u32", "uint4"), ("v2.u32", "uint2"), ("u32", "unsigned"), ("u16", "unsigned short"))
    ),
    (r"extern __shared__ (.+?)(\w+)\[\];", r"\1* \2 = (\1*)dynamic_on_host;"),
)  # fmt: skip


def compiler() -> str:
    """The host's C++ compiler."""
    found = shutil.which("g++")
    if found is None:
        from tests.conftest import absent

        absent("NO KERNEL WAS COMPILED FOR THE HOST: install g++")
    return found


def for_host(text: str) -> str:
    """CUDA source with what only a GPU has said in C++."""
    for pattern, instead in _INSTRUCTIONS:
        text = re.sub(pattern, instead, text)
    return text


class HostKernels:
    """The kernels of ``source`` that take one structure by value.

    Args:
        source: a path inside the package.
        argument: the structure's name.
        names: the kernels.
        macros: as for the GPU.
        folder: takes what the compiler makes.
        call: how the kernel is called where it takes more than the structure, ``*a``.
    """

    def __init__(
        self, source: str, argument: str, names: tuple[str, ...], macros: Mapping[str, int | str], folder: Path,
        call: str | None = None,
    ) -> None:  # fmt: skip
        text = for_host(inline_source(PACKAGE_ROOT / source))
        calls = "".join(
            f'extern "C" void run_{name}({argument}* a, unsigned blocks, int threads, unsigned seed) '
            f"{{ launch_on_host(blocks, threads, seed, [=] {{ {call or name + '(*a)'}; }}); }}\n"
            for name in names
        )
        stem = folder / ("-".join([Path(source).stem, *map(str, macros.values())]))
        stem.with_suffix(".cpp").write_text(f'#include "{HEADER}"\n{text}\n{calls}')
        flags = ["-std=c++17", "-O1", "-w", "-fpermissive", "-pthread", "-shared", "-fPIC", "-fno-gnu-unique"]
        flags += [f"-D{name}={value}" for name, value in macros.items()]
        subprocess.run(
            [compiler(), *flags, str(stem.with_suffix(".cpp")), "-o", str(stem.with_suffix(".so"))],
            check=True,
        )
        self._library = ctypes.CDLL(str(stem.with_suffix(".so")))

    def launch(
        self, name: str, argument: np.ndarray[Any, Any], blocks: int, threads: int, seed: int = 0
    ) -> None:
        """Run a kernel to its end; ``argument`` is the structure's memory, ``seed`` varies the order of threads."""
        getattr(self._library, f"run_{name}")(ctypes.c_void_p(argument.ctypes.data), blocks, threads, seed)
