from __future__ import annotations

import dataclasses
import io
import json
import os
import zipfile

import numpy as np
import pytest

from gnnsample_lab.traces import QueueSeries, SampleTrace, TaskTable
from tests.handmade_trace import make_trace


def same(a: SampleTrace, b: SampleTrace) -> bool:
    return all(
        x == y or (isinstance(x, float) and np.isnan(x) and np.isnan(y))
        for x, y in ((getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(SampleTrace))
    )


@pytest.mark.parametrize(
    "changes", [{}, {"copy_bandwidth_gbps": float("nan"), "lost": None, "completion": None}]
)
def test_round_trip(tmp_path, changes):
    trace = make_trace(**changes)
    assert same(SampleTrace.load(trace.save(tmp_path / "t.npz")), trace)


def test_slots_survive_and_are_derived_where_they_are_not_known(tmp_path):
    trace = make_trace()
    assert len(SampleTrace.load(trace.save(tmp_path / "none")).slots) == 0
    derived = trace.queue_slots()
    assert derived.write_us.tolist() == [0, 0, 4, 4, 4, 4.5]
    assert derived.vertex[derived.lost].tolist() == [22] and np.isnan(derived.claim_us).all()
    known = dataclasses.replace(trace, slots=dataclasses.replace(derived, claim_us=np.arange(6.0)))
    back = SampleTrace.load(known.save(tmp_path / "slots"))
    assert same(back, known) and back.queue_slots() == known.slots


def test_recorded_queue_survives(tmp_path):
    trace = make_trace(queue=QueueSeries([0.0, 2.5], [3, 0]))
    assert SampleTrace.load(trace.save(tmp_path / "t")).queue == trace.queue


def test_trace_without_tasks(tmp_path):
    none = np.empty(0)
    trace = SampleTrace.from_tasks(
        TaskTable(*[none] * 9),
        origin="modelled",
        device_name="X",
        strategy="bsp",
        graph_name="g",
        graph_is_synthetic=False,
        num_sms=1,
        num_blocks=1,
        batch_size=0,
        fanouts=(3,),
    )
    assert same(SampleTrace.load(trace.save(tmp_path / "t.npz")), trace)


def test_times_are_kept_to_the_nanosecond(tmp_path):
    trace = make_trace()
    shift = np.array([0.12345678, 0.5, 0.00049, 1e-7, 0.25])
    tasks = dataclasses.replace(trace.tasks, end_us=trace.tasks.end_us + shift)
    back = SampleTrace.load(dataclasses.replace(trace, tasks=tasks).save(tmp_path / "t.npz"))
    assert np.abs(back.tasks.end_us - tasks.end_us).max() <= 0.5e-3 + 1e-9


def test_equal_traces_give_equal_files(tmp_path):
    assert make_trace().save(tmp_path / "a").read_bytes() == make_trace().save(tmp_path / "b").read_bytes()


def test_files_are_small(tmp_path):
    rng = np.random.default_rng(0)
    n = 50_000
    start = np.sort(rng.random(n) * 300)
    tasks = TaskTable(
        rng.integers(0, 3, n),
        rng.integers(0, 2**21, n),
        rng.integers(0, 500, n),
        rng.integers(0, 11, n),
        rng.integers(0, 132, n),
        rng.integers(0, 2112, n),
        start - rng.random(n),
        start,
        start + rng.random(n) * 5,
    )
    trace = SampleTrace.from_tasks(
        tasks,
        origin="measured",
        device_name="X",
        strategy="persistent",
        graph_name="g",
        graph_is_synthetic=False,
        num_sms=132,
        num_blocks=2112,
        batch_size=9,
        fanouts=(9, 9, 9),
    )
    assert trace.save(tmp_path / "t").stat().st_size < 1_000_000


def test_missing_file_is_not_found(tmp_path):
    with pytest.raises(FileNotFoundError):
        SampleTrace.load(tmp_path / "nowhere.npz")


@pytest.mark.parametrize("keep", [0, 10, 0.5, 0.95])
def test_cut_off_files_name_themselves(tmp_path, keep):
    path = make_trace().save(tmp_path / "cut.npz")
    data = path.read_bytes()
    path.write_bytes(data[: int(keep if keep >= 1 or keep == 0 else keep * len(data))])
    with pytest.raises(ValueError, match=r"cut\.npz is cut off or damaged"):
        SampleTrace.load(path)


def test_every_flipped_byte_is_noticed_or_harmless(tmp_path):
    path = make_trace().save(tmp_path / "t.npz")
    data = bytearray(path.read_bytes())
    noticed = 0
    for at in np.random.default_rng(1).choice(len(data), 120, replace=False):
        broken = bytearray(data)
        broken[at] ^= 0x5A
        path.write_bytes(broken)
        try:
            assert same(SampleTrace.load(path), make_trace())
        except ValueError:
            noticed += 1
    assert noticed > 40


def rewrite(path, change):
    """The same archive with its header changed."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(np.lib.format.read_array(io.BytesIO(members["header.npy"])).tobytes())
    change(header)
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.frombuffer(json.dumps(header).encode(), np.uint8))
    members["header.npy"] = buffer.getvalue()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda h: h.update(version=99), "format version 99"),
        (lambda h: h.update(format="something else"), "another format"),
        (lambda h: h.pop("strategy"), "strategy"),
        (lambda h: h.update(surprise=1), "surprise"),
        (lambda h: h.update(origin="hearsay"), "origin"),
        (lambda h: h.update(total_us="3"), "total_us of the header is '3'"),
        (lambda h: h.update(replace=0), "replace of the header is 0"),
        (lambda h: h.update(fanouts=[1.5] * len(h["fanouts"])), "fanouts of the header are"),
        (lambda h: h.update(fanouts="10"), "fanouts of the header is '10'"),
        (lambda h: h.update(meta=[1]), "meta of the header is"),
        (lambda h: h.update(num_sms=2**63), "num_sms of the header must be from 1 to"),
        (lambda h: h.update(num_blocks=-1), "num_blocks of the header must be from 0 to"),
        (lambda h: h.update(batch_size=-5), "batch_size of the header must be from 0 to"),
        (lambda h: h.update(batch_id=10**30), "batch_id of the header must be from 0 to"),
        (lambda h: h.update(fetch_size=-1), "fetch_size of the header must be from 0 to"),
        (lambda h: h.update(seed=2**64), "seed of the header must be from 0 to"),
        (lambda h: h.update(fanouts=[-2] * len(h["fanouts"])), "fanouts of the header must be from -1 to"),
        (lambda h: h.update(total_us=10**400), "total_us of the header is too large"),
    ],
)
def test_foreign_headers_are_refused(tmp_path, change, message):
    path = make_trace().save(tmp_path / "t.npz")
    rewrite(path, change)
    with pytest.raises(ValueError, match=message):
        SampleTrace.load(path)


def test_a_whole_number_of_microseconds_is_a_float(tmp_path):
    path = make_trace().save(tmp_path / "t.npz")
    rewrite(path, lambda header: header.update(total_us=100, copy_bandwidth_gbps=4000))
    loaded = SampleTrace.load(path)
    assert (loaded.total_us, loaded.copy_bandwidth_gbps) == (100.0, 4000.0)
    assert type(loaded.total_us) is type(loaded.copy_bandwidth_gbps) is float


def test_nothing_is_unpickled(tmp_path):
    path = tmp_path / "evil.npz"
    np.savez(path, header=np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="cannot be read as a trace"):
        SampleTrace.load(path)


def test_failed_write_leaves_the_old_file_and_no_rubbish(tmp_path, monkeypatch):
    path = make_trace().save(tmp_path / "t.npz")
    before = path.read_bytes()

    def fail(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        make_trace(strategy="fused-static").save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["t.npz"]


def test_unfinite_times_are_not_saved(tmp_path):
    trace = make_trace()
    tasks = dataclasses.replace(trace.tasks, end_us=np.full(5, np.nan))
    with pytest.raises(ValueError, match=r"tasks\.end_us must be finite"):
        dataclasses.replace(trace, tasks=tasks).save(tmp_path / "t.npz")


@pytest.mark.parametrize(
    ("meta", "error"),
    [({"limit": float("inf")}, ValueError), ({"day": np.datetime64("2020-01-01")}, TypeError)],
)
def test_what_no_file_can_hold_is_refused(tmp_path, meta, error):
    trace = dataclasses.replace(make_trace(), meta=meta)
    with pytest.raises(error, match=next(iter(meta))):
        trace.save(tmp_path / "t.npz")
    assert not list(tmp_path.iterdir())
    not_known = dataclasses.replace(trace, meta={"limit": float("nan")})
    assert np.isnan(SampleTrace.load(not_known.save(tmp_path / "t.npz")).meta["limit"])


def test_times_that_nanoseconds_do_not_hold_are_refused(tmp_path):
    tasks = dataclasses.replace(make_trace().tasks, end_us=[4.0, 6.0, 7.0, 10.0, 1e16])
    with pytest.raises(ValueError, match="end_us"):
        dataclasses.replace(make_trace(), tasks=tasks).save(tmp_path / "t.npz")


def test_files_have_the_rights_that_the_user_gives(tmp_path):
    usual = os.umask(0o027)
    try:
        path = make_trace().save(tmp_path / "t.npz")
        assert path.stat().st_mode & 0o777 == 0o640
        path.chmod(0o600)
        assert make_trace().save(path).stat().st_mode & 0o777 == 0o600, "those of the file that it replaces"
    finally:
        os.umask(usual)
    assert [each.name for each in tmp_path.iterdir()] == ["t.npz"]


def test_a_home_folder_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert make_trace().save("~/t.npz") == tmp_path / "t.npz"
    assert same(SampleTrace.load("~/t.npz"), make_trace())
