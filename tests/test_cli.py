"""The command line: the server's safety, the doctor on healthy and broken machines, and delegation."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import types
import urllib.error
import urllib.request
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from gnnsample_lab import cli, doctor

REPOSITORY = Path(__file__).resolve().parents[1]


def status_of(name: str) -> doctor.Finding:
    return next(finding for finding in doctor.examine() if finding.name == name)


# -- lab ------------------------------------------------------------------------------------------------------


def test_server_listens_on_loopback_with_a_token(tmp_path: Path) -> None:
    arguments = cli.jupyter_arguments(tmp_path, "secret", port=None, browser=False)
    assert "--ServerApp.ip=127.0.0.1" in arguments
    assert "--IdentityProvider.token=secret" in arguments


OPEN = [
    ["--ip=0.0.0.0"],
    ["--ip", "0.0.0.0"],
    ["--ServerApp.ip=0.0.0.0"],
    ["--LabApp.ip=0.0.0.0"],
    ["--LabServerApp.ip=*"],
    ["--NotebookApp.ip="],
    ["--ServerApp.allow_remote_access=True"],
    ["--ServerApp.allow-remote-access=True"],
    ["--IdentityProvider.token="],
    ["--ServerApp.token="],
    ["--PasswordIdentityProvider.hashed_password=x"],
    ["--ServerApp.identity_provider_class=mine.Open"],
]


@pytest.mark.parametrize("extra", OPEN, ids=" ".join)
def test_no_argument_opens_the_server(
    extra: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("jupyterlab")
    assert cli.main(["lab", "--no-browser", "--dir", str(tmp_path), "--", *extra]) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert extra[0].partition("=")[0] in said and "--allow-remote" in said


def test_another_address_needs_the_flag(tmp_path: Path) -> None:
    options = cli._parser().parse_args(["lab", "--allow-remote"])
    assert options.allow_remote == "0.0.0.0"
    assert cli._parser().parse_args(["lab", "--allow-remote", "10.0.0.1"]).allow_remote == "10.0.0.1"
    arguments = cli.jupyter_arguments(tmp_path, "secret", port=None, browser=False, remote="10.0.0.1")
    assert {"--ServerApp.ip=10.0.0.1", "--IdentityProvider.token=secret"} <= set(arguments)


RESOLVED = """
import sys
from jupyter_server.serverapp import ServerApp
from gnnsample_lab import cli

ServerApp.init_httpserver = lambda self: None
ServerApp.start = lambda self: print("started", self.ip, len(self.identity_provider.token), self.allow_remote_access)
for line in sys.argv[2:]:
    ServerApp.clear_instance()
    print("code", cli.main(["lab", "--no-browser", "--dir", sys.argv[1], *line.split()]), flush=True)
"""


@pytest.mark.slow
def test_the_resolved_settings_are_looked_at_before_the_server_listens(tmp_path: Path) -> None:
    """Configuration files may set what the command line cannot; JupyterLab's own parser decides what came out."""
    (tmp_path / "ours_wins.py").write_text(
        "c.ServerApp.ip = '0.0.0.0'\nc.ServerApp.allow_remote_access = True\nc.IdentityProvider.token = ''\n"
    )
    (tmp_path / "opens.py").write_text("c.LabApp.ip = '0.0.0.0'\n")
    lines = [
        "",
        f"-- --config={tmp_path / 'ours_wins.py'}",
        f"-- --config={tmp_path / 'opens.py'}",
        "--allow-remote",
        "--allow-remote 10.0.0.1",
        "-- --ServerApp.terminals_enabled=False",
    ]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("JUPYTER")}
    environment |= {
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "widgets")]),
        **{f"JUPYTER_{kind}_DIR": str(tmp_path / kind) for kind in ("CONFIG", "DATA", "RUNTIME")},
    }
    run = subprocess.run(
        [sys.executable, "-c", RESOLVED, str(tmp_path / "work"), *lines],
        env=environment, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert run.stdout.splitlines() == [
        "started 127.0.0.1 48 False", "code 0",
        "started 127.0.0.1 48 False", "code 0",
        "code 1",
        "started 0.0.0.0 48 True", "code 0",
        "started 10.0.0.1 48 True", "code 0",
        "started 127.0.0.1 48 False", "code 0",
    ]  # fmt: skip
    assert "listens on '0.0.0.0', not on loopback" in run.stderr


@pytest.mark.parametrize(
    ("changed", "remote", "words"),
    [
        ({}, None, ""),
        ({"ip": "localhost"}, None, ""),
        ({"ip": "::1"}, None, ""),
        ({"ip": ""}, None, "not on loopback"),
        ({"ip": "0.0.0.0"}, None, "not on loopback"),
        ({"ip": "10.0.0.1"}, None, "not on loopback"),
        ({"ip": "example.org"}, None, "not on loopback"),
        ({"ip": "", "sock": "/run/lab.sock"}, None, ""),
        ({"allow_remote_access": True}, None, "remote access"),
        ({"token": ""}, None, "token"),
        ({"token": "another"}, "0.0.0.0", "token"),
        ({"auth_enabled": False}, None, "token"),
        ({"ip": "0.0.0.0", "allow_remote_access": True}, "0.0.0.0", ""),
        ({"ip": ""}, "*", ""),
        ({"ip": "0.0.0.0"}, "10.0.0.1", "listens on"),
    ],
)
def test_what_a_configured_server_gives_away(changed: dict[str, Any], remote: str | None, words: str) -> None:
    settings = {
        "ip": "127.0.0.1",
        "sock": "",
        "allow_remote_access": False,
        "token": "secret",
        "auth_enabled": True,
    }
    settings |= changed
    identity = types.SimpleNamespace(token=settings.pop("token"), auth_enabled=settings.pop("auth_enabled"))
    server = types.SimpleNamespace(identity_provider=identity, **settings)
    said = cli.exposure(server, "secret", remote)
    assert words in said and bool(said) == bool(words)


@pytest.mark.parametrize(("user", "allowed"), [(0, True), (1000, False)])
def test_root_is_allowed_only_as_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, allowed: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user, raising=False)
    arguments = cli.jupyter_arguments(tmp_path, "token", port=1234, browser=True)
    assert ("--ServerApp.allow_root=True" in arguments) == allowed
    assert "--ServerApp.port=1234" in arguments


def test_the_first_notebook_is_opened(tmp_path: Path) -> None:
    (tmp_path / "00_first.ipynb").touch()
    (tmp_path / "01_second.ipynb").touch()
    assert "--LabApp.default_url=/lab/tree/00_first.ipynb" in cli.jupyter_arguments(
        tmp_path, "token", port=None, browser=True
    )


def test_copying_notebooks_keeps_the_readers_work(tmp_path: Path) -> None:
    folder = cli.notebook_folder(tmp_path / "mine")
    (first,) = folder.glob("00_*.ipynb")
    first.write_text("my answers")
    assert cli.notebook_folder(tmp_path / "mine") == folder
    assert first.read_text() == "my answers"
    assert not list(folder.rglob("*.part"))


def test_a_checkout_opens_its_own_notebooks() -> None:
    assert cli.notebook_folder() == REPOSITORY / "notebooks"


def _answer(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.slow
def test_lab_serves_only_with_the_token_and_hides_it_from_ps(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("JUPYTER")}
    environment |= {
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "widgets")]),
        "JUPYTER_CONFIG_DIR": str(tmp_path / "config"),
        "JUPYTER_DATA_DIR": str(tmp_path / "data"),
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
    }
    # A careless configuration of the user's own must not open the server.
    environment["JUPYTER_TOKEN"] = ""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "jupyter_server_config.py").write_text(
        "c.ServerApp.ip = '0.0.0.0'\nc.IdentityProvider.token = ''\n"
    )
    log = tmp_path / "log"
    command = [sys.executable, "-m", "gnnsample_lab.cli", "lab", "--no-browser", "--port", "0"]
    with log.open("wb") as output:
        server = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        found = None
        deadline = time.monotonic() + 90
        while found is None and server.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
            found = re.search(r"http://127\.0\.0\.1:(\d+)/\S*token=(\w+)", log.read_text(errors="replace"))
        assert found, log.read_text(errors="replace")[-2000:]
        port, token = found.groups()
        assert len(token) >= 32
        base = f"http://127.0.0.1:{port}/api/contents"
        answer = None
        while answer is None and server.poll() is None and time.monotonic() < deadline:
            try:
                answer = _answer(base)
            except urllib.error.URLError:  # the address is told before anybody listens there
                time.sleep(0.2)
        assert answer == 403, log.read_text(errors="replace")[-2000:]
        assert _answer(f"{base}?token=wrong") == 403
        assert _answer(f"{base}?token={token}") == 200
        processes = Path(f"/proc/{server.pid}/cmdline")
        if processes.exists():
            assert token.encode() not in processes.read_bytes()
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)


# -- doctor ---------------------------------------------------------------------------------------------------


def test_doctor_reports_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.main(["doctor"])
    text = capsys.readouterr().out
    findings = {finding.name: finding for finding in doctor.examine()}
    assert code == (1 if any(f.status == doctor.PROBLEM for f in findings.values()) else 0)
    for name in (
        "Python",
        "packages",
        "Numba",
        "GPU driver",
        "CuPy",
        "PyTorch",
        "OGB",
        "data root",
        "Chromium",
    ):
        assert re.search(rf"^ *(ok|note|problem)  {name}\b", text, re.MULTILINE), name
    assert "Here you get:" in text


def test_doctor_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["doctor", "--json"])
    assert {row["status"] for row in json.loads(capsys.readouterr().out)} <= {"ok", "note", "problem"}


@pytest.mark.parametrize(
    ("version", "extra"),
    [(None, ""), ((11, 8), ""), ((12, 4), "cuda12"), ((13, 0), "cuda13"), ((14, 1), "cuda13")],
)
def test_the_extra_fits_the_driver(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int] | None, extra: str
) -> None:
    monkeypatch.setattr(doctor, "driver_cuda_version", lambda: version)
    assert doctor.cuda_extra() == extra


def test_driver_version_from_nvidia_smi(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(doctor.ctypes, "CDLL", no_library)
    monkeypatch.setattr(doctor, "_nvidia_smi", lambda *_: "| Driver Version: 580.1   CUDA Version: 13.1 |")
    assert doctor.driver_cuda_version() == (13, 1)
    monkeypatch.setattr(doctor, "_nvidia_smi", lambda *_: "command failed")
    assert doctor.driver_cuda_version() is None


def _without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Make the doctor's machine one where these distributions are not installed."""
    real = metadata.version

    def version(name: str) -> str:
        if name in names:
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(doctor.metadata, "version", version)


def test_driver_without_cupy_is_a_problem_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "driver_cuda_version", lambda: (12, 8))
    _without(monkeypatch, "cupy-cuda12x", "cupy-cuda13x", "cupy")
    finding = status_of("CuPy")
    assert finding.status == doctor.PROBLEM
    assert "gnnsample-lab[cuda12]" in finding.remedy
    assert cli.main(["doctor"]) == 1
    assert "gnnsample-lab[cuda12]" in capsys.readouterr().out


def test_the_linker_of_applications_is_missed_where_there_is_a_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _without(monkeypatch, "numba-cuda")
    monkeypatch.setattr(doctor, "driver_cuda_version", lambda: (13, 1))
    finding = doctor.check_linker()
    assert finding.status == doctor.PROBLEM and "not installed: numba-cuda;" in finding.detail
    assert "gnnsample-lab[cuda13]" in finding.remedy
    monkeypatch.setattr(doctor, "driver_cuda_version", lambda: None)
    assert doctor.check_linker().status == doctor.NOTE


def test_a_numpy_that_numba_cuda_cannot_use_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"numpy": "2.5.1", "numba-cuda": "0.30.4", "cuda-core": "1.2.0", "cuda-bindings": "13.5.0"}
    monkeypatch.setattr(doctor, "_version", versions.get)
    finding = doctor.check_linker()
    assert "does not work with NumPy 2.5.1" in finding.detail and "numpy<2.5" in finding.remedy


def test_a_cupy_that_cannot_be_imported_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "driver_cuda_version", lambda: (13, 0))
    monkeypatch.setattr(doctor, "_version", lambda name: "14.0" if name == "cupy-cuda13x" else None)

    class Broken(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("libnvrtc.so.13: cannot open shared object file")

    monkeypatch.setitem(sys.modules, "cupy", Broken("cupy"))
    finding = doctor.check_cupy()
    assert finding.status == doctor.PROBLEM
    assert "libnvrtc.so.13" in finding.detail


def test_two_cupys_are_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda name: "14.0" if name.startswith("cupy-") else None)
    assert "several at once" in doctor.check_cupy().detail


def test_missing_packages_do_not_crash_the_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    _without(monkeypatch, "plotly", "torch", "ogb")
    assert "pip install 'plotly'" in status_of("packages").remedy
    assert status_of("PyTorch").remedy == "pip install 'torch'"
    assert status_of("OGB").status == doctor.NOTE


def test_a_failing_check_becomes_a_finding() -> None:
    def check_everything() -> doctor.Finding:
        raise KeyError("surprise")

    (finding,) = doctor.examine([check_everything])
    assert finding.status == doctor.PROBLEM
    assert "KeyError" in finding.detail


def test_chromium_is_found_where_the_variable_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    browser = tmp_path / "browser"
    browser.write_text("#!/bin/sh\n")
    browser.chmod(0o755)
    monkeypatch.setenv("LAB_CHROMIUM", str(browser))
    assert doctor.find_chromium() == str(browser)
    assert doctor.main(["--chromium"]) == 0
    assert capsys.readouterr().out.strip() == str(browser)
    monkeypatch.setenv("LAB_CHROMIUM", str(tmp_path / "no such file"))
    assert doctor.find_chromium() is None
    assert doctor.main(["--chromium"]) == 1


def test_doctor_names_the_data_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ogb" / "ogbl_ddi").mkdir(parents=True)
    monkeypatch.setenv("LAB_DATA_ROOT", str(tmp_path))
    assert doctor.check_data().status == doctor.OK
    assert "ogbl_ddi" in doctor.check_data().detail
    monkeypatch.setenv("LAB_DATA_ROOT", str(tmp_path / "nothing"))
    assert "does not exist yet" in doctor.check_data().detail
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LAB_DATA_ROOT", str(tmp_path / "file" / "below" / "it"))
    found = doctor.check_data()
    assert found.status == doctor.PROBLEM and f"nothing can be written to {tmp_path / 'file'}" in found.detail
    monkeypatch.setenv("LAB_DATA_ROOT", "/proc/nowhere/at/all")
    assert doctor.check_data().status == doctor.PROBLEM, "not even root makes folders there"


def test_make_asks_the_doctor_before_anything_is_installed() -> None:
    """Isolated, without site-packages: the standard library must do."""
    command = [sys.executable, "-I", "-S", str(REPOSITORY / "gnnsample_lab" / "doctor.py"), "--cuda-extra"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.strip() in ("", "cuda12", "cuda13")


# -- the rest -------------------------------------------------------------------------------------------------


def test_datasets_lists_the_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["datasets"]) == 0
    assert "ogbn-arxiv" in capsys.readouterr().out
    assert cli.main(["datasets", "--json"]) == 0
    assert "ogbn-products" in {row["name"] for row in json.loads(capsys.readouterr().out)}


def test_bench_hands_its_arguments_over(monkeypatch: pytest.MonkeyPatch) -> None:
    import gnnsample_lab

    seen: list[list[str]] = []
    stand_in = types.ModuleType("gnnsample_lab.bench")
    stand_in.main = lambda argv: seen.append(argv)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gnnsample_lab.bench", stand_in)
    monkeypatch.setattr(gnnsample_lab, "bench", stand_in, raising=False)
    assert cli.main(["bench", "some-suite", "--help"]) == 0
    assert seen == [["some-suite", "--help"]]


@pytest.mark.parametrize(
    "arguments",
    [[], ["no-such-command"], ["lab", "--port", "x"], ["lab", "--port", "65536"], ["lab", "--port=-1"]],
)
def test_bad_commands_end_with_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert "usage: gnnsample-lab" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("gnnsample-lab ")


@pytest.mark.parametrize(
    ("raised", "code", "words"),
    [
        (KeyboardInterrupt(), 130, "gnnsample-lab: interrupted"),
        (OSError("disk\nfull"), 1, "gnnsample-lab: disk full"),
        (KeyError("no such thing"), 1, "gnnsample-lab: no such thing"),
        (ValueError(), 1, "gnnsample-lab: ValueError"),
        (MemoryError("too large"), 1, "gnnsample-lab: too large"),
    ],
)
@pytest.mark.parametrize("command", ["datasets", "doctor", "bench"])
def test_what_ends_a_command_is_said_in_one_line(
    command: str, raised: BaseException, code: int, words: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def fails(arguments: Any) -> int:
        raise raised

    monkeypatch.setattr(cli, f"_{command}", fails)
    assert cli.main([command]) == code
    captured = capsys.readouterr()
    assert captured.err == f"{words}\n" and captured.out == ""


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("mine")
    assert cli.main(["lab", "--dir", str(tmp_path / "file" / "below")]) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert "no notebooks to open" in said and "--dir" in said


@pytest.mark.parametrize("command", [["datasets", "--json"], ["bench", "--help"], ["--help"], ["doctor"]])
def test_a_reader_that_has_gone_is_met_in_silence(command: list[str]) -> None:
    """The other end of the pipe is closed before a line is written, as ``| head`` closes it early."""
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    run = subprocess.run(
        [sys.executable, "-m", "gnnsample_lab.cli", *command],
        stdout=writer, stderr=subprocess.PIPE, text=True, env=environment, timeout=120, check=False,
    )  # fmt: skip
    os.close(writer)
    # argparse itself passes over a long help text that cannot be written.
    assert run.stderr == "" and run.returncode in ([0, 141] if "--help" in command else [141])


INTERRUPTED = """
import os, signal, sys
from gnnsample_lab import cli, doctor

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
doctor.examine = lambda: os.kill(os.getpid(), signal.SIGINT)
sys.exit(cli.main(["doctor"]))
"""


def test_ctrl_c_prints_one_line() -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    run = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "gnnsample-lab: interrupted\n")


def test_a_data_root_that_is_a_file_is_a_problem(tmp_path, monkeypatch):
    place = tmp_path / "graphs"
    place.write_text("no folder")
    monkeypatch.setenv("LAB_DATA_ROOT", str(place))
    found = doctor.check_data()
    assert found.status == doctor.PROBLEM and "is a file" in found.detail


def test_pictures_that_do_not_exist_are_an_error(tmp_path, capsys):
    edges = tmp_path / "edges.txt"
    edges.write_text("0 1\n1 0\n")
    asked = ["--only", "no such picture", "--notebooks", str(tmp_path), "--graph", f"snap:{edges}"]
    assert cli.main(["pictures", *asked]) == 1
    assert "no notebook with a picture whose name contains 'no such picture'" in capsys.readouterr().err
