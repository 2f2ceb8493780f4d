"""The suite ``sanitize``: compute-sanitizer's tools over a program that launches every family of kernels.

Each case of the program (:mod:`.program`) is a process: first by itself, which compiles and compares every result with
the CPU twin's, then under each tool, as many at once as there are cores. What a tool says is counted by kernel.
racecheck sees shared memory only.
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
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.source import stripped_cuda
from gnnsample_lab.bench.suite import Unavailable, VerificationError
from gnnsample_lab.device import kernels
from gnnsample_lab.device.host import usable_cores

from . import TOOLS, program
from .launches import LINKED

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


def by_source(launches: Mapping[str, int]) -> dict[str, int]:
    """Launches of every kernel of the package, 0 for those that were not launched. Linked kernels, whose modules name
    no source, are those of the sources that are linked."""
    linked = {key.partition(":")[2]: n for key, n in launches.items() if key.startswith(f"{LINKED}:")}
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


@dataclass(frozen=True)
class _Ran:
    """One process: a case, under a tool or by itself."""

    text: str
    result: Mapping[str, Any] | None
    seconds: float


def _run(command: list[str]) -> _Ran:
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
    return _Ran(text, result, time.perf_counter() - began)


def _run_case(prefix: Sequence[str], case: str) -> _Ran:
    return _run([*prefix, sys.executable, "-m", program.__name__, case])


def _under(tool: str, name: str) -> list[str]:
    return [tool, "--tool", name, "--print-limit", "10000", "--show-backtrace", "no"]


def _joined(runs: Mapping[str, _Ran]) -> dict[str, Any]:
    """What the processes of all cases say, together; ``summary`` is the tool's own last lines, with the cases of each
    where they differ, ``seconds`` what the processes took, one after another."""
    errors, launches, words = Counter[str](), Counter[str](), dict[str, list[str]]()
    cases: dict[str, Any] = {}
    for case, ran in runs.items():
        said = parse(ran.text)
        errors.update(_of_sources(said["errors"], {} if ran.result is None else ran.result["launches"]))
        words.setdefault(said["summary"] or "no summary", []).append(case)
        if ran.result is not None:
            cases |= ran.result["cases"]
            launches.update(ran.result["launches"])
    return {
        "summary": next(iter(words)) if len(words) == 1
        else "; ".join(f"{summary} ({', '.join(where)})" for summary, where in words.items()),
        "errors": dict(errors), "results_equal": sum(case["equal"] for case in cases.values()),
        "different": [what for case in cases.values() for what in case["different"]],
        "failed": {name: case["failed"] for name, case in cases.items() if case["failed"]},
        "ended": all(ran.result is not None for ran in runs.values()),
        "seconds": sum(ran.seconds for ran in runs.values()), "launches": dict(launches),
    }  # fmt: skip


def _of_sources(errors: Mapping[str, int], launches: Mapping[str, int]) -> dict[str, int]:
    """Errors by ``source:name`` where the process launched one kernel of that name, else by what the tool calls it."""
    named: dict[str, list[str]] = {}
    for key in launches:
        if not key.startswith(f"{LINKED}:"):
            named.setdefault(key.partition(":")[2], []).append(key)
    return {named[name][0] if len(named.get(name, ())) == 1 else name: n for name, n in errors.items()}


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
    cases = program.QUICK if session.quick else tuple(program.CASES)
    began = time.perf_counter()
    with ThreadPoolExecutor(usable_cores()) as pool:  # nothing is timed here
        plain = dict(zip(cases, pool.map(functools.partial(_run_case, ()), cases), strict=True))
        alone = _joined(plain)
        lost = [
            f"{case}: {' '.join(ran.text.split())[-300:]}"
            for case, ran in plain.items()
            if ran.result is None
        ]
        if lost:
            raise VerificationError(f"without a tool, these ended without a result: {'; '.join(lost)}")
        took = time.perf_counter() - began
        session.say(f"without a tool: {alone['results_equal']} results equal the CPU twin's, {took:.0f} s")
        if alone["different"]:
            raise VerificationError(f"these differ from the CPU twin: {', '.join(alone['different'][:10])}")
        slowest_first = sorted(cases, key=lambda case: -plain[case].seconds)
        jobs = {
            (name, case): pool.submit(_run_case, _under(tool, name), case)
            for case in slowest_first
            for name in TOOLS
        }
        tools = {}
        for name in TOOLS:
            tools[name] = found = _joined({case: jobs[name, case].result() for case in cases})
            del found["launches"]
            where = ", ".join(f"{kernel} {count}" for kernel, count in found["errors"].items())
            session.say(f"{name}: {found['summary']}{f' ({where})' if where else ''}")
    return {
        "settings": {"tools": list(TOOLS), "version": version[-1] if version else None, "cases": list(cases)},
        "verification": {"results_equal_to_cpu_twin": alone["results_equal"]}, "graphs": {},
        "rows": rows(by_source(alone["launches"]), tools), "tools": tools, "failed": alone["failed"],
    }  # fmt: skip


def rows(launches: Mapping[str, int], tools: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for each kernel: launches, and what each tool says of it, or of kernels of its name."""
    return [
        {
            "kernel": key, "launches": count,
            **{
                name: tool["errors"].get(key, 0) + tool["errors"].get(key.partition(":")[2], 0)
                for name, tool in tools.items()
            },
        }
        for key, count in launches.items()
    ]  # fmt: skip
