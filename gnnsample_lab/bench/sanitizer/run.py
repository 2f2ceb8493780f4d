"""The suite ``sanitize``: compute-sanitizer's tools over a program that launches every family of kernels.

The program (:mod:`.program`) runs once by itself, which compiles and compares every result with the CPU twin's, and
once under each tool. What a tool says is counted by kernel. racecheck sees shared memory only.
"""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.source import stripped_cuda
from gnnsample_lab.bench.suite import Unavailable, VerificationError
from gnnsample_lab.device import kernels

from . import TOOLS, program

NO_KERNEL = "outside of kernels"
"""Where a tool names no kernel: copies, and calls of the CUDA API."""
_PLACES = (
    "compute-sanitizer",
    "/usr/local/cuda/bin/compute-sanitizer",
    "/opt/cuda/extras/compute-sanitizer/compute-sanitizer",
)
_TIMEOUT_S = 500
_SUMMARY = re.compile(r"=+ ((?:ERROR|RACECHECK) SUMMARY: .*)")
_BEGINS = re.compile(r"^=+ (?! )(.*)$")
_NOT_AN_ERROR = re.compile(
    r"COMPUTE-SANITIZER|SUMMARY|Target application|This tool|No attachable|Warning: .*(?:trace|driver)"
)
_KERNEL = re.compile(r"\b(?:at|in) (?:0x[0-9a-f]+ in )?([A-Za-z_]\w*)(?:\([^)]*\))?\+0x[0-9a-f]+")
_KERNEL_LINE = re.compile(r"\bat 0x[0-9a-f]+ in .*?([A-Za-z_]\w*)\s*(?:\(|$)")
_GLOBAL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)\s*)?(\w+)\s*\(")


def find_sanitizer() -> str | None:
    """Path of ``compute-sanitizer``, or None."""
    return next((found for place in _PLACES if (found := shutil.which(place))), None)


@functools.cache
def all_kernels() -> tuple[str, ...]:
    """``source:name`` of every kernel of the package, those of headers under each source that includes them."""
    found = []
    for path in sorted(kernels.PACKAGE_ROOT.rglob("*.cu")):
        text = stripped_cuda(kernels.inline_source(path))
        source = path.relative_to(kernels.PACKAGE_ROOT).as_posix()
        found += [f"{source}:{name}" for name in _GLOBAL.findall(text)]
    return tuple(dict.fromkeys(found))


def parse(text: str) -> dict[str, Any]:
    """A tool's output: ``summary`` (its own last line) and ``errors``: how many it describes, by kernel, or by what it
    says where it names none."""
    errors: Counter[str] = Counter()
    block: list[str] | None = None
    summary = ""

    def close() -> None:
        if block:
            kernel = _kernel_of(block)
            errors[f"{kernel}: {block[0]}" if kernel == NO_KERNEL else kernel] += 1

    for line in text.splitlines():
        found = _SUMMARY.search(line)
        if found:
            summary = found.group(1).strip()
        begins = _BEGINS.match(line)
        if begins is not None:
            close()
            words = begins.group(1).strip()
            block = None if not words or _NOT_AN_ERROR.search(words) else [words]
        elif block is not None and line.startswith("="):
            block.append(line.lstrip("= "))
    close()
    return {"summary": summary, "errors": dict(errors)}


def _kernel_of(block: list[str]) -> str:
    for line in block:
        if "Saved host backtrace" in line or "Host Frame" in line:
            break
        found = _KERNEL.search(line) or _KERNEL_LINE.search(line)
        if found:
            return found.group(1)
    return NO_KERNEL


def number_in(summary: str) -> int | None:
    """The errors or hazards of a tool's own summary; None where it printed none."""
    found = re.search(r"SUMMARY: (\d+) (?:errors?|hazards?)", summary)
    return int(found.group(1)) if found else None


def by_source(launches: Mapping[str, int]) -> dict[str, int]:
    """Launches of every kernel of the package, 0 for those that were not launched. Linked kernels, whose modules name
    no source, are those of the sources that are linked."""
    linked = {key.partition(":")[2]: n for key, n in launches.items() if key.startswith(f"{program.LINKED}:")}
    found = {}
    for key in all_kernels():
        source, _, name = key.partition(":")
        mine = (
            linked.get(name, 0)
            if kernels.needs_operator(kernels.PACKAGE_ROOT / source)
            else launches.get(key, 0)
        )
        found[key] = mine
    return found


def _run(command: list[str]) -> tuple[str, dict[str, Any] | None, float]:
    """Both outputs, the program's result (None without one) and seconds."""
    began = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        text = f"{done.stdout}\n{done.stderr}"
    except subprocess.TimeoutExpired as error:
        parts = [
            part if isinstance(part, str) else (part or b"").decode(errors="replace")
            for part in (error.stdout, error.stderr)
        ]
        text = "\n".join(parts)
    at = text.find(program.MARK)
    result = json.loads(text[at + len(program.MARK) :].splitlines()[0]) if at >= 0 else None
    return text, result, time.perf_counter() - began


def _cases(result: Mapping[str, Any] | None) -> dict[str, Any]:
    cases = {} if result is None else result["cases"]
    return {
        "results_equal": sum(case["equal"] for case in cases.values()),
        "different": [what for case in cases.values() for what in case["different"]],
        "failed": {name: case["failed"] for name, case in cases.items() if case["failed"]},
    }


def sanitize(session: Session) -> dict[str, Any]:
    """Launches and errors of every kernel under each tool.

    Raises:
        Unavailable: there is no GPU, or no compute-sanitizer.
        VerificationError: a result differs from the CPU twin's without any tool.
    """
    session.require_gpu("sanitize")
    tool = find_sanitizer()
    if tool is None:
        raise Unavailable(
            "suite 'sanitize' needs compute-sanitizer, which comes with the CUDA toolkit: it is not on the PATH"
        )
    version = (
        subprocess.run([tool, "--version"], capture_output=True, text=True, check=False)
        .stdout.strip()
        .splitlines()
    )
    command = [sys.executable, "-m", program.__name__, *(program.QUICK if session.quick else ())]
    text, plain, seconds = _run(command)
    if plain is None:
        raise VerificationError(f"the program ended without a result: {' '.join(text.split())[-300:]}")
    alone = _cases(plain)
    session.say(f"without a tool: {alone['results_equal']} results equal the CPU twin's, {seconds:.0f} s")
    if alone["different"]:
        raise VerificationError(f"these differ from the CPU twin: {', '.join(alone['different'][:10])}")
    launches = by_source(plain["launches"])

    def under(name: str) -> dict[str, Any]:
        options = ["--tool", name, "--print-limit", "10000", "--show-backtrace", "no"]
        text, result, seconds = _run([tool, *options, *command])
        found = {**parse(text), **_cases(result), "ended": result is not None, "seconds": seconds}
        where = ", ".join(f"{kernel} {count}" for kernel, count in found["errors"].items())
        session.say(
            f"{name}: {found['summary'] or 'no summary'}, {seconds:.0f} s{f' ({where})' if where else ''}"
        )
        return found

    with ThreadPoolExecutor(len(TOOLS)) as pool:  # nothing is timed here, and each tool waits for the host
        tools = dict(zip(TOOLS, pool.map(under, TOOLS), strict=True))
    return {
        "settings": {"tools": list(TOOLS), "version": version[-1] if version else None, "cases": list(plain["cases"])},
        "verification": {"results_equal_to_cpu_twin": alone["results_equal"]}, "graphs": {},
        "rows": rows(launches, tools), "tools": tools, "failed": alone["failed"],
    }  # fmt: skip


def rows(launches: Mapping[str, int], tools: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for each kernel: launches, and what each tool says of kernels of its name."""
    return [
        {
            "kernel": key, "launches": count,
            **{name: tool["errors"].get(key.partition(":")[2], 0) for name, tool in tools.items()},
        }
        for key, count in launches.items()
    ]  # fmt: skip
