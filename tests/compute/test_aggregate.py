"""lab.aggregate on the CPU: values, gradients, kinds of arrays, bad arguments."""

from __future__ import annotations

import numpy as np
import pytest

import gnnsample_lab as lab
from tests.compute.conftest import dense, empty_block, random_block

torch = pytest.importorskip("torch")
KERNELS = tuple(lab.aggregation_kernels())


def test_the_ladder_has_its_rungs() -> None:
    assert KERNELS == (
        "naive",
        "memory-aware",
        "memory-aware-staged",
        "grouped",
        "gnnadvisor-style",
        "library",
        "register-tile",
        "auto",
    )
    assert all(lab.aggregation_kernels().values())


def test_a_kernels_former_name_is_taken(block) -> None:
    """Without its renumbering the rung is no GNNAdvisor, which its name said before."""
    x = np.random.default_rng(1).random((block.num_src, 7))
    lab.aggregate(block, x, kernel="gnnadvisor")
    counts = [lab.aggregation_cost(block, 8, name) for name in ("gnnadvisor-style", "gnnadvisor", "grouped")]
    assert counts[0] == counts[1] != counts[2] and counts[1].kernel == "gnnadvisor-style"
    layer = lab.make_model("gcn", 7, 8, 3, kernel="gnnadvisor").layers[0]
    assert layer.kernel == "gnnadvisor-style"
    with pytest.raises(ValueError, match="kernel must be one of .*'gnnadvisor-style'.*got 'gnnadvisors'"):
        lab.aggregate(block, x, kernel="gnnadvisors")
    assert "without its renumbering" in lab.aggregation_kernels()["gnnadvisor-style"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
def test_values(block, weighted, reduce, dtype):
    rng = np.random.default_rng(1)
    x = rng.random((block.num_src, 7)).astype(dtype)
    weight = rng.random(block.num_edges).astype(dtype) if weighted else None
    expected = dense(block, weight, reduce) @ x
    found = lab.aggregate(block, x, weight, reduce)
    assert isinstance(found, np.ndarray) and found.dtype == dtype
    assert np.allclose(found, expected, rtol=1e-5 if dtype == "float32" else 1e-12)
    assert not found[::7].any(), "rows without edges are zero"
    given = None if weight is None else torch.from_numpy(weight)
    tensors = lab.aggregate(block, torch.from_numpy(x), given, reduce)
    assert np.allclose(tensors, expected, rtol=1e-5 if dtype == "float32" else 1e-12)


def test_a_cpu_takes_the_name_of_every_kernel_and_sums_in_one_way(block):
    """The kernels themselves are compared with a dense matrix on a GPU, in ``test_gpu_compute.py``."""
    x = np.random.default_rng(1).random((block.num_src, 7))
    one = lab.aggregate(block, x)
    assert all(lab.aggregate(block, x, kernel=kernel).tobytes() == one.tobytes() for kernel in KERNELS)


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_gradients(block, reduce):
    rng = np.random.default_rng(2)
    x = torch.from_numpy(rng.random((block.num_src, 3))).requires_grad_()
    weight = torch.from_numpy(rng.random(block.num_edges)).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, w: lab.aggregate(block, a, w, reduce), (x, weight))
    matrix = torch.from_numpy(dense(block, weight.detach().numpy(), reduce))
    out = lab.aggregate(block, x, weight, reduce)
    upstream = torch.from_numpy(rng.random(tuple(out.shape)))
    (grad,) = torch.autograd.grad(out, x, upstream)
    assert torch.allclose(grad, matrix.T @ upstream)


def test_torch_blocks_of_a_sample():
    graph = lab.load("arxiv-like", scale=0.02)
    batch = lab.NeighborSampler(graph, [4, 3], device="cpu").sample(range(50))
    for block, tensors in zip(batch.blocks, batch.to_torch().blocks, strict=True):
        x = torch.rand(block.num_src, 5)
        ours = lab.aggregate(tensors, x)
        assert ours.shape == (block.num_dst, 5)
        assert np.allclose(ours, dense(block, None, "mean") @ x.numpy(), rtol=1e-5)
        assert torch.equal(ours, lab.aggregate(block, x))


def test_further_rows_are_ignored(block):
    x = np.random.default_rng(0).random((block.num_src + 5, 4))
    assert np.array_equal(lab.aggregate(block, x), lab.aggregate(block, x[: block.num_src]))


@pytest.mark.parametrize("features", [0, 1, 4])
def test_no_edges(features):
    block = empty_block()
    out = lab.aggregate(block, np.ones((3, features)))
    assert out.shape == (3, features) and not out.any()


def test_read_only_and_strided_features(block):
    x = np.asfortranarray(np.random.default_rng(0).random((block.num_src, 6)))
    expected = dense(block, None, "mean") @ x
    assert np.allclose(lab.aggregate(block, x), expected)
    x.setflags(write=False)
    assert np.allclose(lab.aggregate(block, x), expected)


def test_bad_arguments(block):
    x = np.ones((block.num_src, 3))
    weight = np.ones(block.num_edges)
    with pytest.raises(ValueError, match="kernel must be one of .*got 'fast'"):
        lab.aggregate(block, x, kernel="fast")
    with pytest.raises(ValueError, match="reduce must be one of .*got 'max'"):
        lab.aggregate(block, x, reduce="max")
    with pytest.raises(TypeError, match="block must be a Block"):
        lab.aggregate(object(), x)
    with pytest.raises(TypeError, match="x must be float32 or float64 .got int64"):
        lab.aggregate(block, x.astype(int))
    with pytest.raises(TypeError, match="x must be a NumPy"):
        lab.aggregate(block, x.tolist())
    with pytest.raises(ValueError, match="x must have 2 dimensions"):
        lab.aggregate(block, x[:, 0])
    with pytest.raises(ValueError, match=r"x must have a row for each of 90 sources .got 80"):
        lab.aggregate(block, x[:80])
    with pytest.raises(ValueError, match="weight must have shape"):
        lab.aggregate(block, x, weight[1:])
    with pytest.raises(TypeError, match="weight must have the element type of x, float64 .got float32"):
        lab.aggregate(block, x, weight.astype("f4"))
    with pytest.raises(TypeError, match="weight must be of the same kind"):
        lab.aggregate(block, x, torch.from_numpy(weight))


def test_blocks_keep_what_was_derived_from_them(block):
    from gnnsample_lab.compute.aggregation.csr import csr_of

    assert csr_of(block) is csr_of(block)
    assert csr_of(block) is not csr_of(random_block())


def test_the_librarys_matrix_is_made_once_for_the_same_weights(block):
    """Otherwise each of its timed calls would hold host work that no other kernel has."""
    from gnnsample_lab.compute.aggregation.csr import Csr
    from gnnsample_lab.compute.aggregation.ladder import library_matrix

    x = torch.ones(block.num_src, 3)
    csr = Csr(
        *map(torch.from_numpy, (block.indptr, block.indices)), block.num_dst, block.num_src, block.num_edges
    )
    weight = torch.rand(block.num_edges)
    first = library_matrix(csr, x, weight)
    assert library_matrix(csr, x, weight) is first is not library_matrix(csr, x, weight.clone())
    weight[0] += 1
    for mean in (False, True):
        found = library_matrix(csr, x, weight, mean).to_dense()
        np.testing.assert_allclose(found, dense(block, weight.numpy(), "mean" if mean else "sum"), rtol=1e-5)
        weight[1] += 1
    found = library_matrix(csr, x, weight, True).to_dense()
    np.testing.assert_allclose(found, dense(block, weight.numpy(), "mean"), rtol=1e-5)
    ones = library_matrix(csr, x)
    assert library_matrix(csr, x) is ones and library_matrix(csr, x.double()) is not ones


def test_read_only_weights_are_no_warning(block, recwarn):
    weight = np.ones(block.num_edges, np.float32)
    weight.flags.writeable = False
    lab.aggregate(block, np.ones((block.num_src, 2), np.float32), weight)
    assert not recwarn.list


def test_the_callers_default_device_is_not_where_host_arrays_are_made(features=3):
    torch = pytest.importorskip("torch")
    made = random_block(1)
    wanted = lab.aggregate(made, torch.ones(made.num_src, features))
    torch.set_default_device("meta")
    try:
        again = random_block(1)
        found = lab.aggregate(again, torch.ones(again.num_src, features, device="cpu"))
    finally:
        torch.set_default_device(None)
    assert torch.equal(found, wanted)
