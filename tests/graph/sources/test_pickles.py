"""Pickles that are read without being unpickled: what comes out, and what never runs."""

from __future__ import annotations

import collections
import os
import pickle
import struct
import warnings

import numpy as np
import pytest
import scipy.sparse

from gnnsample_lab.graph.sources import pickles

ARRAYS = [
    np.arange(6, dtype=np.int32).reshape(2, 3),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.array([1.5, -2], dtype=">f4"),
    np.array([True, False]),
    np.empty((0, 4), dtype=np.int64),
    np.arange(256, dtype=np.uint8),
    np.float16([0.5]),
]


@pytest.mark.parametrize("protocol", range(5))
@pytest.mark.parametrize("value", ARRAYS, ids=lambda a: a.dtype.str)
def test_arrays_of_every_protocol(value, protocol):
    found = pickles.array(pickles.parse(pickle.dumps(value, protocol=protocol)))
    assert found.dtype == value.dtype.newbyteorder("=") and np.array_equal(found, value)


@pytest.mark.parametrize("protocol", range(5))
def test_matrices_and_neighbour_lists_of_every_protocol(protocol):
    stored = scipy.sparse.csr_matrix(np.array([[0, 2.5, 0], [1, 0, 3]], dtype=np.float32))
    data, indices, indptr, shape = pickles.matrix(pickles.parse(pickle.dumps(stored, protocol=protocol)))
    again = scipy.sparse.csr_matrix((data, indices, indptr), shape)
    assert (again != stored).nnz == 0 and again.shape == (2, 3)
    lists = collections.defaultdict(list, {0: [1, 300, 70_000, -5], 1: [], 2**40: [0]})
    assert pickles.parse(pickle.dumps(lists, protocol=protocol)) == lists
    scalars = pickles.parse(pickle.dumps([np.int64(7), np.int32(-2)], protocol=protocol))
    assert [pickles.integer(s) for s in scalars] == [7, -2]


@pytest.mark.parametrize("protocol", range(5))
def test_plain_values_of_every_protocol(protocol):
    value = [
        None,
        True,
        False,
        0,
        -1,
        255,
        256,
        65536,
        -(2**70),
        1.5,
        "gr\u00f6\u00dfer \u221e",
        ("a", ()),
        {"k": [(1, 2, 3)]},
    ]
    assert pickles.parse(pickle.dumps(value, protocol=protocol)) == value


def test_what_python_2_wrote_is_what_unpickling_gives(planetoid_files):
    value = np.arange(6, dtype=np.float32).reshape(3, 2) * 1e3
    stored = planetoid_files.pickled(planetoid_files.array(value))
    lists = planetoid_files.pickled(planetoid_files.graph({0: [1, 2], 3: [], 500: [0]}))
    dense = np.array([[0, 1.5], [2, 0], [0, 0]])
    csr = planetoid_files.pickled(planetoid_files.matrix(dense))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert np.array_equal(pickle.loads(stored, encoding="latin1"), value)
        assert pickle.loads(lists, encoding="latin1") == {0: [1, 2], 3: [], 500: [0]}
        assert np.array_equal(pickle.loads(csr, encoding="latin1").toarray(), dense)
    assert np.array_equal(pickles.array(pickles.parse(stored)), value)
    assert pickles.parse(lists) == {0: [1, 2], 3: [], 500: [0]}
    data, indices, indptr, shape = pickles.matrix(pickles.parse(csr))
    assert np.array_equal(scipy.sparse.csr_matrix((data, indices, indptr), shape).toarray(), dense)


def test_strings_of_protocol_0_as_python_2_writes_them():
    raw = np.array([1, -1], dtype="<i4").tobytes()
    quoted = repr(raw)[1:].encode()
    stored = (
        b"cnumpy.core.multiarray\n_reconstruct\np1\n(cnumpy\nndarray\np2\n(I0\ntp3\nS'b'\np4\ntp5\nRp6\n"
        b"(I1\n(L2L\ntp7\ncnumpy\ndtype\np8\n(S'i4'\np9\nI0\nI1\ntp10\nRp11\n(I3\nS'<'\np12\nNNNI-1\nI-1\nI0\ntp13\nb"
        b"I00\nS" + quoted + b"\np14\ntp15\nb."
    )  # fmt: skip
    assert pickle.loads(stored, encoding="latin1").tolist() == [1, -1]
    assert pickles.array(pickles.parse(stored)).tolist() == [1, -1]


class Evil:
    def __init__(self, function, *args):
        self.call = (function, args)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(5))
@pytest.mark.parametrize(
    "function, args",
    [
        (os.system, ("touch pwned",)),
        (eval, ("open('pwned', 'w')",)),
        (getattr, ("", "join")),
        (bytes, (2**40,)),
        (np.load, ("pwned",)),
        (open, ("pwned", "w")),
        (scipy.sparse.coo_matrix, ((2, 2),)),
        (np.array, ([1],)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_names_that_are_not_needed_are_refused_and_never_called(
    protocol, function, args, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for stored in (
        Evil(function, *args),
        [np.arange(3), Evil(function, *args)],
        {0: [Evil(function, *args)]},
    ):
        with pytest.raises(pickles.PickleError, match="never called"):
            pickles.parse(pickle.dumps(stored, protocol=protocol))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "data, match",
    [
        (b"cos\nsystem\n(S'touch pwned'\ntR.", "os.system, which is never called"),
        (b"(S'touch pwned'\nios\nsystem\n.", "opcode b'i'"),
        (b"(cos\nsystem\nS'touch pwned'\no.", "os.system"),
        (b"c__builtin__\nlist\n(S'ab'\ntR.", "it calls list"),
        (b"c__builtin__\nobject\n)\x81.", "it calls object"),
        (b"c__builtin__\nlist\n}(U\x07__doc__U\x01xub.", "a Built was expected"),
        (b"\x80\x02\x82\x01.", "opcode b'\\\\x82'"),
        (b"P1\n.", "opcode b'P'"),
        (b"S'unbalanced\n.", "a string was expected"),
        (b"}(K\x01u.", "a key has no value"),
        (b"K\x01\x86.", "too few items"),
        (b"K\x01K\x02a.", "a list was expected"),
    ],
)  # fmt: skip
def test_other_opcodes_are_refused(data, match):
    with pytest.raises(pickles.PickleError, match=match):
        pickles.parse(data)


def test_sizes_that_a_file_claims_take_no_memory():
    for data in (
        b"T" + struct.pack("<I", 2**31) + b"abc.", b"B" + struct.pack("<I", 2**32 - 1) + b"abc.", b"U\xff.",
    ):  # fmt: skip
        with pytest.raises(EOFError):
            pickles.parse(data)
    assert pickles.parse(b"K\x05r\xff\xff\xff\xff0j\xff\xff\xff\xff.") == 5, "a memo of four billion places"
    stored = bytearray(pickle.dumps(np.zeros((5, 5)), protocol=2))
    at = stored.index(b"K\x05K\x05")
    stored[at : at + 4] = b"M\xff\xff" + b"0"
    with pytest.raises((ValueError, TypeError, LookupError)):
        pickles.array(pickles.parse(bytes(stored)))


@pytest.mark.parametrize(
    "value",
    [np.array([{}, 1], dtype=object), np.array(["a"]), np.array([1 + 2j]), np.zeros(2, dtype="i4,f4")],
)
def test_arrays_of_other_things_are_refused(value):
    with pytest.raises(ValueError, match="something else than numbers|which is never called"):
        pickles.array(pickles.parse(pickle.dumps(value, protocol=2)))


@pytest.mark.parametrize("value", [3, [1], {"a": 1}, np.float64(1.5), "text"])
def test_other_values_are_no_arrays_matrices_or_integers(value):
    parsed = pickles.parse(pickle.dumps(value, protocol=2))
    for read in (pickles.array, pickles.matrix, pickles.integer):
        if not (read is pickles.integer and value == 3):
            with pytest.raises(pickles.PickleError, match="expected"):
                read(parsed)
