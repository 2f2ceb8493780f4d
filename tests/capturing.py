"""A CUDA graph that another thread captures meanwhile, as samplers do whenever their memory grows."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def capture_in_another_thread() -> Iterator[None]:
    """Another thread captures for as long as the block runs; what it captured is complete afterwards."""
    import cupy

    device, begun, over = cupy.cuda.Device().id, threading.Event(), threading.Event()
    failed: list[BaseException] = []

    def capture() -> None:
        try:
            with cupy.cuda.Device(device), cupy.cuda.Stream(non_blocking=True) as stream:
                values = cupy.zeros(1000, cupy.int32)
                stream.synchronize()
                stream.begin_capture()
                try:
                    values += 1
                    begun.set()
                    assert over.wait(50)
                    values += 2
                finally:
                    graph = stream.end_capture()
                graph.launch(stream)
                stream.synchronize()
                assert values.get().tolist() == [3] * 1000
        except BaseException as error:
            failed.append(error)
        finally:
            begun.set()

    thread = threading.Thread(target=capture)
    thread.start()
    assert begun.wait(50)
    try:
        yield
    finally:
        over.set()
        thread.join()
        if failed:
            raise failed[0]
