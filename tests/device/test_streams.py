"""Order between streams, on a GPU that only keeps books: who waits for whom, and when memory is used again."""

from __future__ import annotations

import pickle
import random
import sys

import pytest

from gnnsample_lab.device import streams

from .fake_cuda import Race, World


@pytest.fixture
def world(monkeypatch):
    world = World()
    monkeypatch.setitem(sys.modules, "cupy", world.cupy)
    monkeypatch.setitem(sys.modules, "torch", world.torch)
    return world


def sampled(world):
    """What a sampler does: work on CuPy's current stream that writes a result."""
    with streams.call():
        ready = streams.Ready()
        array = streams.leased(world.cupy.empty(4), ready)
        world.write(array, world.current.ptr)
    return array, ready


def reuse_all(world):
    """Write to every block that any pool would hand out: on the stream that the pool believes to be safe."""
    for stream in list(world.free):
        with _stream(world, stream):
            held = [world.cupy.empty(1) for _ in range(len(world.free[stream]))]
            for array in held:
                world.write(array, stream)


def _stream(world, address):
    stream = world.cupy.cuda.Stream.__new__(world.cupy.cuda.Stream)
    stream.ptr = address
    return stream


# ---- the books themselves


def test_unordered_access_is_a_race(world):
    array = world.cupy.empty(4)
    world.write(array, 0)
    with pytest.raises(Race):
        world.read(array, world.new_stream())


def test_plain_memory_goes_back_while_it_is_read(world):
    # What this module is for: without a lease the pool hands the block on.
    array, side = world.cupy.empty(4), world.torch.cuda.Stream()
    world.write(array, 0)
    event = world.cupy.cuda.Event()
    world.record(event.ptr, 0)
    world.wait(side.cuda_stream, event.ptr)
    world.read(array, side.cuda_stream)
    del array
    with pytest.raises(Race):
        reuse_all(world)


# ---- cost


def test_one_stream_costs_no_event(world):
    for _ in range(3):
        turns = streams.Turns()
        turns.take()
        array, ready = sampled(world)
        ready.order()
        streams.order(array)
        assert streams.exported(array) is array
        turns.take()
        del array, ready
    assert world.calls == []


def test_a_side_stream_for_both_costs_no_event(world):
    side = world.torch.cuda.Stream()
    with world.torch.cuda.stream(side), _stream(world, side.cuda_stream):
        array, ready = sampled(world)
        ready.order()
        del array, ready
    assert world.calls == []


def test_a_stream_waits_once(world):
    array, ready = sampled(world)
    side = world.cupy.cuda.Stream()
    ready.wait(side)
    before = len(world.calls)
    ready.wait(side)
    with side:
        streams.order(array)
    assert [c for c in world.calls[before:] if c == ("wait", side.ptr)] == []


# ---- results


def test_work_comes_after_torch_and_torch_after_work(world):
    side = world.torch.cuda.Stream()
    given = world.cupy.empty(4)
    with world.torch.cuda.stream(side):
        world.write(given, side.cuda_stream)
        with streams.call():
            world.read(given, world.current.ptr)
            ready = streams.Ready()
            array = streams.leased(world.cupy.empty(4), ready)
            world.write(array, world.current.ptr)
        world.read(array, side.cuda_stream)
        world.write(given, side.cuda_stream)  # torch may use the seeds' memory again


def test_torch_is_ordered_after_work_that_fails(world):
    side, given = world.torch.cuda.Stream(), world.cupy.empty(4)
    with world.torch.cuda.stream(side):
        world.write(given, side.cuda_stream)
        with pytest.raises(KeyboardInterrupt), streams.call():
            world.read(given, world.current.ptr)
            raise KeyboardInterrupt
        world.write(given, side.cuda_stream)


@pytest.mark.parametrize(
    "how", ["wait", "cupy", "torch", "torch_wait_event", "wait_event", "order", "address", "protocol"]
)
def test_ready_makes_other_streams_wait(world, how):
    made_on = world.cupy.cuda.Stream()
    with made_on:
        array, ready = sampled(world)
    cupy_stream, torch_stream = world.cupy.cuda.Stream(), world.torch.cuda.Stream()
    reader = cupy_stream.ptr
    if how == "wait":
        with cupy_stream:
            ready.wait()
    elif how == "cupy":
        ready.wait(cupy_stream)
    elif how == "wait_event":
        cupy_stream.wait_event(ready)
    elif how == "address":
        ready.wait(cupy_stream.ptr)
    elif how == "order":
        with cupy_stream:
            streams.order(array, None, [1, 2])
    elif how == "protocol":

        class Foreign:
            def __cuda_stream__(self):
                return (0, cupy_stream.ptr)

        ready.wait(Foreign())
    else:
        reader = torch_stream.cuda_stream
        ready.wait(torch_stream) if how == "torch" else torch_stream.wait_event(ready)
    world.read(array, reader)


def test_ready_refuses_what_is_no_stream(world):
    _, ready = sampled(world)
    with pytest.raises(TypeError, match="stream must be a CuPy or torch stream"):
        ready.wait("main")


def test_ready_answers_like_an_event(world):
    _, ready = sampled(world)
    assert ready.query() is False and ready.done is False  # the books say "not ready"
    ready.synchronize()
    assert world.calls[-1] == ("host", ready.ptr)
    assert pickle.loads(pickle.dumps(ready)) is streams.DONE


def test_who_waits_later_does_not_wait_for_what_comes_after_a_note(world):
    _, ready = sampled(world)
    before = len(world.calls)
    ready.note()
    recorded = world.calls[before:]
    assert len(recorded) == 1
    ready.note()
    assert world.calls[before:] == recorded  # once is enough
    assert ready.ptr and world.calls[before:] == recorded
    streams.DONE.note()


def test_the_event_of_a_per_thread_stream_is_recorded_at_once(world):
    world.clocks[2] = {}
    with _stream(world, 2):
        streams.Ready()
    assert world.calls == [("record", 2)]


# ---- memory


def test_a_reader_is_waited_for_when_memory_goes(world):
    array, ready = sampled(world)
    reader = world.cupy.cuda.Stream()
    ready.wait(reader)
    world.read(array, reader.ptr)
    del array
    reuse_all(world)


def test_who_is_current_at_the_end_is_waited_for(world):
    made_on = world.cupy.cuda.Stream()
    with made_on:
        array, ready = sampled(world)
    main = world.torch.cuda.Stream()
    ready.wait(world.cupy.cuda.Stream())  # somebody else has waited
    main_waits = world.torch.cuda.Stream.wait_event
    main_waits(main, ready)
    ready.settle()  # nobody is noted as a reader any more
    with world.torch.cuda.stream(main):
        world.read(array, main.cuda_stream)
        del array
    reuse_all(world)


def test_who_has_waited_by_cupy_and_is_current_at_the_end_is_waited_for(world):
    array, ready = sampled(world)
    reader = world.cupy.cuda.Stream()
    reader.wait_event(ready)  # CuPy takes the bare event: nobody notes the reader
    world.read(array, reader.ptr)
    with reader:
        del array
    reuse_all(world)


def test_torchs_stream_of_the_call_is_a_reader(world):
    main = world.torch.cuda.Stream()
    with world.torch.cuda.stream(main):
        array, _ = sampled(world)
        world.read(array, main.cuda_stream)
    del array  # while another stream of torch is current
    reuse_all(world)


def test_a_kept_view_holds_the_block(world):
    array, ready = sampled(world)
    view = world.cupy.ndarray((1,), None, array.data + 8)
    reader = world.cupy.cuda.Stream()
    del array
    assert not any(world.free.values())
    ready.wait(reader)
    world.read(view, reader.ptr)
    with reader:
        del view
    reuse_all(world)


def test_an_array_of_no_lease_is_leased_for_its_export(world):
    main, made_on = world.torch.cuda.Stream(), world.cupy.cuda.Stream()
    with made_on, world.torch.cuda.stream(main):
        plain = world.cupy.empty(4)
        world.write(plain, made_on.ptr)
        tensor = streams.exported(plain)
        del plain
        world.read(tensor, main.cuda_stream)
        assert streams.ready_of(tensor) is not None
    del tensor
    reuse_all(world)


def test_everything_allocated_inside_is_leased(world):
    with streams.leasing() as ready:
        array = world.cupy.empty(4)
        world.write(array, 0)
    assert streams.ready_of(array) is ready
    assert streams.ready_of(world.cupy.empty(4)) is None
    assert streams.ready_of(4) is None


def test_a_failed_record_waits_for_the_whole_device(world):
    array, ready = sampled(world)
    reader = world.cupy.cuda.Stream()
    ready.wait(reader)
    world.read(array, reader.ptr)
    world.fail = KeyboardInterrupt()
    del array
    assert world.synchronized == 1
    reuse_all(world)


def test_captured_streams_are_let_be(world):
    array, _ = sampled(world)
    capture = world.cupy.cuda.Stream()
    world.capturing.add(capture.ptr)
    with capture:
        del array
    assert world.calls == []


# ---- scratch memory


def test_a_call_on_another_stream_waits_for_the_last(world):
    turns, scratch = streams.Turns(), None
    others = [world.cupy.cuda.Stream() for _ in range(3)]
    with others[0]:
        turns.take()
        scratch = streams.leased(world.cupy.empty(8), turns)
    for i in (0, 1, 1, 2, 0, 2):
        with others[i]:
            turns.take()
            world.write(scratch, others[i].ptr)
            turns.leave()
    assert world.calls.count(("wait", others[1].ptr)) == 1
    del scratch
    reuse_all(world)


def test_an_interrupted_call_is_waited_for(world):
    turns, scratch = streams.Turns(), world.cupy.empty(8)
    first, second = world.cupy.cuda.Stream(), world.cupy.cuda.Stream()
    with pytest.raises(KeyboardInterrupt), first:
        turns.take()
        world.write(scratch, first.ptr)
        raise KeyboardInterrupt
    world.here.cupy = world.cupy.cuda.Stream.null
    with second:
        turns.take()
        world.write(scratch, second.ptr)


def test_calls_wait_for_what_they_read(world):
    made_on = world.cupy.cuda.Stream()
    with made_on:
        graph, _ = sampled(world)
    turns = streams.Turns(graph, None)
    for stream in (world.cupy.cuda.Stream(), world.cupy.cuda.Stream()):
        with stream:
            turns.take()
            world.read(graph, stream.ptr)
    turns = None
    del graph
    reuse_all(world)


def test_scratch_on_per_thread_streams(world):
    world.clocks[2] = {}
    turns = streams.Turns()
    with _stream(world, 2):
        turns.take()
        turns.leave()
        turns.take()
    assert world.calls == [("record", 2), ("wait", 2)]


# ---- all together


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_have_no_race(world, seed):
    """Sampling, exporting, reading and dropping on random streams, each read by a stream that the contract allows."""
    rng = random.Random(seed)
    cupys = [world.cupy.cuda.Stream.null, *(world.cupy.cuda.Stream() for _ in range(3))]
    torches = [world.torch.cuda.Stream() for _ in range(3)]
    turns, held = streams.Turns(), []
    with streams.leasing(turns):
        scratch = world.cupy.empty(8)
    for _ in range(120):
        here, there = rng.choice(cupys), rng.choice(torches)
        both = rng.random() < 0.3
        here = _stream(world, there.cuda_stream) if both else here
        with here, world.torch.cuda.stream(there):
            act = rng.random()
            if act < 0.3 or not held:
                with streams.call():
                    turns.take()
                    world.write(scratch, here.ptr)
                    ready = streams.Ready()
                    array = streams.leased(world.cupy.empty(4), ready)
                    world.read(scratch, here.ptr)
                    world.write(array, here.ptr)
                held.append((array, ready, {here.ptr, there.cuda_stream}))
                del array, ready
            elif act < 0.5:
                array, _, allowed = rng.choice(held)
                streams.exported(array)
                allowed |= {here.ptr, there.cuda_stream}
                del array
            elif act < 0.6:
                _, ready, allowed = rng.choice(held)
                reader = rng.choice([*cupys, *torches])
                ready.wait(reader)
                allowed.add(streams._address(reader))
            elif act < 0.85:
                array, _, allowed = rng.choice(held)
                world.read(array, rng.choice(sorted(allowed)))
                del array
            else:
                held.pop(rng.randrange(len(held)))
        if rng.random() < 0.2:
            reuse_all(world)
    held.clear()
    reuse_all(world)


# ---- without a GPU


def test_done_waits_for_nothing():
    assert streams.DONE.query() and streams.DONE.done and streams.DONE.ptr == 0
    for stream in (None, object()):
        streams.DONE.wait(stream)
    streams.DONE.synchronize()
    streams.DONE.order()
    streams.DONE.settle()
    assert pickle.loads(pickle.dumps(streams.DONE)) is streams.DONE
    public = {name for name in vars(streams.Ready) if not name.startswith("_")}
    assert public <= set(dir(streams.DONE))


def test_torch_is_not_asked_before_it_uses_the_gpu(world, monkeypatch):
    side = world.torch.cuda.Stream()
    with world.torch.cuda.stream(side):
        world.torch_initialized = False
        sampled(world)
        assert world.calls == []
        monkeypatch.delitem(sys.modules, "torch")
        sampled(world)
        assert world.calls == [] and "torch" not in sys.modules


def test_on_the_cpu_nothing_of_cupy_is_asked(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)  # an import raises
    with streams.call(False), streams.results(False) as ready:
        assert ready is streams.DONE
