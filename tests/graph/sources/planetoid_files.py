"""Planetoid's files in small copies, pickled byte for byte as Python 2's cPickle does with protocol 2."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import scipy.sparse


def text(value: str) -> bytes:
    raw = value.encode("latin-1")
    return b"U" + bytes([len(raw)]) + raw if len(raw) < 256 else b"T" + struct.pack("<I", len(raw)) + raw


def integer(value: int) -> bytes:
    if 0 <= value < 256:
        return b"K" + bytes([value])
    return b"M" + struct.pack("<H", value) if 0 <= value < 65536 else b"J" + struct.pack("<i", value)


def array(value: np.ndarray) -> bytes:
    kind = value.dtype.str
    shape = b"(" + b"".join(integer(n) for n in value.shape) + b"t"
    dtype = b"cnumpy\ndtype\n" + text(kind[1:]) + b"K\x00K\x01\x87R(K\x03" + text(kind[0]) + b"NNN"
    dtype += integer(-1) + integer(-1) + b"K\x00tb"
    start = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01"
    raw = value.tobytes()
    return start + shape + dtype + b"\x89T" + struct.pack("<I", len(raw)) + raw + b"tb"


def matrix(value: np.ndarray) -> bytes:
    csr = scipy.sparse.csr_matrix(value.astype(np.float32))
    state = {"indptr": array(csr.indptr), "indices": array(csr.indices), "data": array(csr.data)}
    shape = b"(" + integer(value.shape[0]) + integer(value.shape[1]) + b"t"
    items = b"".join(text(k) + v for k, v in {"_shape": shape, **state, "maxprint": integer(50)}.items())
    return b"cscipy.sparse.csr\ncsr_matrix\nq\x01)\x81q\x02}q\x03(" + items + b"ub"


def graph(neighbours: dict[int, list[int]]) -> bytes:
    items = b"".join(
        integer(v) + b"](" + b"".join(integer(u) for u in ids) + b"e" for v, ids in neighbours.items()
    )
    return b"ccollections\ndefaultdict\nq\x01c__builtin__\nlist\nq\x02\x85Rq\x03(" + items + b"u"


def pickled(content: bytes) -> bytes:
    return b"\x80\x02" + content + b"."


NEIGHBOURS = {0: [1, 2, 0], 1: [0, 0, 9], 2: [0], 9: [1], 7: [8], 8: [7], 3: []}
"""A self-loop, a repeated edge, vertices that are not named; 10 is in no file."""


def parts(known: int = 6, test: tuple[int, ...] = (9, 7, 8), train: int = 2) -> dict[str, bytes]:
    """Eight files of a graph whose vertex v has the feature v + 1 at column v % 5, and class v % 3."""

    def feat(ids: list[int]) -> np.ndarray:
        rows = np.zeros((len(ids), 5))
        rows[np.arange(len(ids)), [v % 5 for v in ids]] = [v + 1 for v in ids]
        return rows

    def classes(ids: list[int]) -> np.ndarray:
        return np.eye(3, dtype=np.int32)[[v % 3 for v in ids]]

    listed = {"": list(range(train)), "all": list(range(known)), "t": list(test)}
    files = {f"{k}x": pickled(matrix(feat(ids))) for k, ids in listed.items()}
    files.update({f"{k}y": pickled(array(classes(ids))) for k, ids in listed.items()})
    files["graph"] = pickled(graph(NEIGHBOURS))
    files["test.index"] = "".join(f"{v}\n" for v in test).encode()
    return files


def write(folder: Path, name: str, **changes: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part, content in {**parts(), **changes}.items():
        (folder / f"ind.{name}.{part}").write_bytes(content)
