"""A training step as a CUDA graph: forward, backward and update replayed at fixed sizes, one launch for the host.

A step of a small model is hundreds of short kernels, and Python needs longer to launch them than the GPU to run them.
Captured once and replayed, they cost the host a launch. A graph has fixed sizes and addresses, hence mini-batches are
copied to memory with some room (:mod:`gnnsample_lab.compute.padding`): rows beyond a mini-batch's are empty, no edge
reads them, and the loss leaves them out, so that gradients are those of the mini-batch.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from gnnsample_lab.checks import flag, function, optional, shown
from gnnsample_lab.compute.aggregation.transpose import deterministic
from gnnsample_lab.compute.autocast import arithmetic
from gnnsample_lab.compute.fused.block import SummedBlock
from gnnsample_lab.compute.fused.sampler import FusedBatch, FusedSampler
from gnnsample_lab.compute.models import MODELS
from gnnsample_lab.compute.padding import PaddedBatch, Sizes, check_capturable, has_weights
from gnnsample_lab.device import streams
from gnnsample_lab.device.capturing import without_collection
from gnnsample_lab.features.caching.cache import FeatureCache
from gnnsample_lab.graph.graph import Graph
from gnnsample_lab.minibatch.export import tensor

from .memory import take_workspaces
from .step import Loss, Step

STEPS_TO_CAPTURE = 3
"""Steps of a size until one is replayed: one makes the optimizer's state, one compiles what is missing."""
MAX_GRAPHS = 8
"""Captured steps that are kept, those used last: a schedule of a number would add one at each change."""
_KEPT = (
    "while a training step was captured as a CUDA graph. Is a tensor kept that was made of the model's parameters with "
    "gradients, a clone for example? PyTorch's backward pass then waits for the stream that it was made on: detach it"
)
_PLAIN = frozenset(
    {type(None), bool, int, float, str, FunctionType, MethodType, BuiltinFunctionType}
    | {kind for kind in np.sctypeDict.values() if issubclass(kind, (np.number, np.bool_))}
)
"""Types of attributes whose change has a step captured anew: values that can be compared, and functions."""
_WITHIN_DEVICE = 3
"""``cudaMemcpyDeviceToDevice``."""
CAPTURABLE = ("auto", "register-tile", "naive", "memory-aware", "memory-aware-staged")
"""Aggregation kernels that a graph can hold; the others wait for the host, or allocate outside."""


def captured_step(
    model: Any, optimizer: Any, sampler: Any, features: Any = None, *, loss: Loss | None = None
) -> CapturedStep:
    """A training step over mini-batches of ``sampler``, replayed as CUDA graphs; on a CPU the same step, uncaptured.

    The first mini-batch of a size is trained on launch by launch, the second is captured, and from then on the step
    is replayed. Sizes are rounded up with some room; a mini-batch that does not fit makes them larger, and the step is
    captured anew; so it is where ``torch.autocast`` or the precision of products changes. Losses are those of
    uncaptured steps up to the order of additions, without dropout; dropout draws from the generator's counter, another
    mask at each replay. Mini-batches of another kind, summed by a :class:`~gnnsample_lab.FusedSampler` or not, with
    weights or without, have the step captured anew as well: kinds that take turns are not replayed.

    Hyper-parameters that are tensors, as Adam's learning rate, may change at any time. A change of one that is a number
    or a tuple, as ``betas``, ``momentum`` and SGD's learning rate, has the step captured anew; of the graphs captured
    the 8 used last are kept.

    So does a change of the model: its layers, parameters, buffers and their memory, what is frozen, hooks of modules,
    and attributes that are numbers, strings, functions or tuples of them, as ``training`` and ``dropout``. Other
    changes, of a list, a dictionary or a global variable for example, are not seen and need a new step. A ``forward``
    that changes such an attribute of its own at each call, as a counter, is never replayed.

    Args:
        model: ``model(blocks, x) -> logits [rows, classes]`` on the sampler's device. Rows beyond the mini-batch's
            reach it: a module that mixes rows, other than ``BatchNorm1d``, must not count them.
        optimizer: over its parameters, or some of them. One that keeps state on the host is changed to keep it on the
            GPU (``capturable``), and its learning rate becomes a tensor, so that schedulers go on working.
        sampler: a :class:`~gnnsample_lab.NeighborSampler`, :class:`~gnnsample_lab.PinSAGESampler` or
            :class:`~gnnsample_lab.FusedSampler` on a graph with labels.
        features: a :class:`~gnnsample_lab.FeatureCache`, or anything with its ``extract``; None: the graph's features,
            all of them on the device, or those that a ``FusedSampler`` sums, which are the only ones that it may have.
        loss: ``loss(logits, target) -> scalar``, where targets of rows that do not count are -1, in all columns where
            there are several; default cross entropy, for labels of several columns binary cross entropy over the rows
            that count.

    Returns:
        A callable ``(batch) -> loss``, a tensor on the device; nothing is waited for. A mini-batch of a graph with
        another number of vertices or edges is a ValueError, what is no mini-batch a TypeError; with the default loss,
        logits without a row for each seed and a column for each class are a ValueError.

    Raises:
        TypeError: an argument of the wrong kind.
        ValueError: the graph has no labels or no features, ``features`` are of another graph or not those that the
            sampler sums, the optimizer holds no parameter of the model, needs a
            closure for its ``step``, or cannot keep its state on the GPU.
    """
    graph = getattr(sampler, "graph", None)
    if not isinstance(graph, Graph) or not hasattr(sampler, "sample"):
        raise TypeError(f"sampler must be a sampler of this package (got {shown(sampler)})")
    if graph.label is None:
        raise ValueError(f"graph {graph.name!r} has no label: training needs one per vertex")
    if isinstance(sampler, FusedSampler):
        if features is not None and features is not sampler.features:
            raise ValueError(
                "features must be None or the sampler's own with a FusedSampler, which has summed their rows already "
                f"(got {shown(features)})"
            )
        features = sampler.features
    if features is None:
        if graph.feat is None:
            raise ValueError(f"graph {graph.name!r} has no features: give features")
        features = FeatureCache(graph.feat, ratio=1.0, device=sampler.device)
    if not callable(getattr(features, "extract", None)):
        raise TypeError(f"features must have extract, as a FeatureCache has (got {shown(features)})")
    rows = getattr(features, "num_nodes", graph.num_nodes)
    if rows != graph.num_nodes:
        raise ValueError(
            f"features must have a row for each of {graph.num_nodes} vertices (got {shown(features)})"
        )
    loss = optional(function, "loss", loss)
    labels = tensor(graph.label).to("cuda" if sampler.device == "cuda" else "cpu")
    return CapturedStep(model, optimizer, labels, features, loss, graph, graph.num_classes)


def is_captured(wanted: bool | None, usual: bool, model: str, kernel: str | None, device: str) -> bool:
    """Whether a system's training steps are captured.

    Args:
        wanted: what the user says; None: as usual, for models of this package.
        usual: what the system does.
        model, kernel: names; a kernel of None is a model of the user's.

    Raises:
        ValueError: it is wanted and cannot be.
    """
    if device == "cpu":
        return False
    possible = kernel in CAPTURABLE and not deterministic()
    if wanted is None:
        return usual and possible and model in MODELS
    if flag("captured", wanted) and not (possible or kernel is None):
        raise ValueError(
            f"captured=True needs a kernel that a CUDA graph can hold, {', '.join(CAPTURABLE)}, and no deterministic "
            f"algorithms (got kernel={kernel!r})"
        )
    return wanted


class CapturedStep(Step):
    """See :func:`captured_step`; on a CPU the plain step.

    Args:
        model, optimizer, labels, features, loss, num_classes: as in :class:`.step.Step`.
        graph: the one that mini-batches have to be of; None: any.

    Attributes:
        captures: how often a step has been captured; 0 on a CPU.
        room: sizes that mini-batches have to fit, None before the first.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        labels: Any,
        features: Any,
        loss: Loss | None,
        graph: Graph | None = None,
        num_classes: int = 0,
    ) -> None:
        super().__init__(model, optimizer, labels, features, loss, num_classes)
        self.graph = graph
        self.on_gpu = bool(labels.is_cuda)
        self.captures = 0
        self.room: Sizes | None = None
        self._inputs: PaddedBatch | None = None
        self._real_rows: dict[int, Any] = {}
        self._loaded: Any = None
        self._reduce: str | None = None
        self._lengths: Any = None
        self._graphs: dict[Any, _Captured | None] = {}
        self._tensors: dict[tuple[int, str], Any] = {}
        self._seen: list[Any] = []
        self._known: Any = None
        self._contents = _Contents(model)
        if self.on_gpu:
            import cupy

            # CuPy's: PyTorch's finds the current stream in Python, which takes as long as a launch.
            self._under_way = cupy.cuda.Event(disable_timing=True)
            self._stream: int | None = None
            # cuBLAS has one workspace for all that is captured on a stream. Steps that two threads replay at the same
            # time would write to one another's.
            self._capturing = streams.lent_torch_stream(self)
            check_capturable()
            _keep_state_on_gpu(optimizer)

    def load(self, batch: Any) -> Any:
        """Extract the features of a mini-batch to where the step reads them; the next call is for this mini-batch.

        Without it they are extracted to memory of their own and copied.

        Returns:
            The extraction's statistics; None on a CPU, where nothing is done: the step itself extracts.

        Raises:
            TypeError: ``batch`` is no mini-batch.
            ValueError: it is of a graph of another size than the sampler's.
        """
        self._check(batch)
        if not self.on_gpu:
            return None
        self._loaded = None  # should this call fail, the memory holds no mini-batch as a whole
        with streams.torch_stream() as stream:
            self._take_turn(stream)
            try:
                stats = self._filled(batch)
            finally:  # what was launched before an error may still write
                self._under_way.record(stream)
        self._loaded = batch
        return stats

    def _check(self, batch: Any) -> None:
        """Edges of one graph would be trained on with labels and rows of another."""
        wanted, given = self.graph, getattr(batch, "graph", None)
        if wanted is None or given is wanted:
            return
        if given is None:  # mini-batches as tensors, or copied to the GPU, may not keep theirs
            if not all(hasattr(batch, name) for name in ("node_ids", "seeds", "blocks")):
                raise TypeError(f"batch must be a mini-batch of a sampler (got {shown(batch)})")
            return
        if (given.num_nodes, given.num_edges) != (wanted.num_nodes, wanted.num_edges):
            raise ValueError(
                f"batch must be of the sampler's graph, {wanted.num_nodes} vertices and {wanted.num_edges} edges (got "
                f"one of a graph with {given.num_nodes} and {given.num_edges})"
            )

    def _filled(self, batch: Any) -> Any:
        """Bring a mini-batch to the memory that the step reads; the extraction's statistics."""
        first, blocks = _apart(batch.blocks)
        sizes, inputs, x = Sizes.of(blocks), self._inputs, None
        if first is not None:
            if inputs is None or not self._fits(blocks, sizes, first.reduce, first.width):
                inputs = self._with_room(blocks, sizes, first.empty_table(0), first.reduce)
            first.write(inputs.x, self._lengths)
            stats = batch.stats
        elif inputs is not None and self._fits(blocks, sizes):
            _, stats = self.features.extract(batch.node_ids, out=inputs.rows[: sizes.nodes[0]])
        else:
            x, stats = self.features.extract(batch.node_ids)
            x = tensor(x)
            inputs = self._with_room(blocks, sizes, x)
        inputs.fill(blocks, sizes, batch.seeds, x)
        return stats

    def _run(self, batch: Any, x: Any, update: bool) -> tuple[Any, Any]:
        self._check(batch)
        if not self.on_gpu:
            return super()._run(batch, x, update)
        in_place = isinstance(self.features, FeatureCache) and self.features.device == "cuda"
        if self._loaded is not batch and (isinstance(batch, FusedBatch) or (x is None and in_place)):
            self.load(batch)
        with streams.torch_stream() as stream:
            self._take_turn(stream)
            try:
                inputs, is_there = self._inputs, self._loaded is batch
                self._loaded = None
                if inputs is None or not is_there:
                    blocks = batch.blocks
                    sizes = Sizes.of(blocks)
                    x = tensor(self.features.extract(batch.node_ids)[0]) if x is None else x
                    inputs = self._with_room(blocks, sizes, x)
                    inputs.fill(blocks, sizes, batch.seeds, x)
                return self._replayed(inputs, update)
            finally:
                self._under_way.record(stream)

    def _take_turn(self, stream: Any) -> None:
        """Let a stream that the last call was not on wait for that call: both write to the same memory."""
        if stream.ptr != self._stream:
            stream.wait_event(self._under_way)
            self._stream = stream.ptr

    def replay(self) -> Any:
        """The update of the mini-batch before once more: what is left of a step where its inputs cost nothing.

        Raises:
            RuntimeError: nothing has been captured yet, or the step is on a CPU, where nothing is.
        """
        if not self.on_gpu:
            raise RuntimeError("replay needs a step on a GPU: on a CPU nothing is captured")
        with streams.torch_stream() as stream:
            self._take_turn(stream)
            captured = self._graphs.get(self._key(True))
            if captured is None:
                raise RuntimeError("no step has been captured yet: call the step with two mini-batches first")
            try:
                loss, _ = captured.replay()
            finally:
                self._under_way.record(stream)
            return loss

    def _replayed(self, inputs: PaddedBatch, update: bool) -> tuple[Any, Any]:
        key = self._key(update)
        if key not in self._graphs:
            # A step of plain launches: the optimizer makes its state, kernels are compiled.
            self._graphs[key] = None
            forget_oldest(self._graphs, MAX_GRAPHS, self._under_way.synchronize)
            with _masked_norms(self.model, self._real_rows):
                return self._padded(inputs, update)
        captured = self._graphs[key] = self._graphs.pop(key)  # the one used last is the last to go
        if captured is None:
            with _masked_norms(self.model, self._real_rows):
                captured = _Captured(lambda: self._padded(inputs, update), self.model, self._capturing)
            self._graphs[key] = captured
            self.captures += 1
        return captured.replay()

    def _key(self, update: bool) -> Any:
        """What a captured step holds besides its mini-batch: what the model is made of, and how PyTorch computes."""
        how = arithmetic(self.labels.device.type)
        return update, self._contents.key(), how, self._settings() if update else None

    def _settings(self) -> Any:
        """A key for the optimizer's settings. A tensor that became another object is copied back to the one that
        captured steps read; where that fails, steps are captured anew."""
        now = _objects(self.optimizer)
        if len(now) != len(self._seen) or not all(map(operator.is_, now, self._seen)):
            if not kept_in_place(self.optimizer, self._tensors):
                self._under_way.synchronize()
                self._graphs.clear()
            self._known, self._seen = _settings(self.optimizer), _objects(self.optimizer)
        return self._known

    def _padded(self, inputs: PaddedBatch, update: bool) -> tuple[Any, Any]:
        if self._reduce is None:
            return self._step(inputs.blocks(), inputs.x, inputs.target, update, inputs.is_seed)
        blocks, made = inputs.blocks(), (inputs.x, self._lengths)
        first = SummedBlock(blocks[0].src, lambda *_: made, self._reduce, inputs.x.shape[1])
        return self._step([first, *blocks], None, inputs.target, update, inputs.is_seed)

    def _fits(self, blocks: Any, sizes: Sizes, reduce: str | None = None, width: int | None = None) -> bool:
        """Whether the present memory is for such blocks and has room for them.

        Args:
            reduce: of a first block that is summed.
            width: numbers in a row; None: as in the mini-batch before.
        """
        inputs = self._inputs
        return (
            inputs is not None
            and reduce == self._reduce
            and width in (None, inputs.width)
            and inputs.takes(blocks)
            and sizes.fits(inputs.room)
        )

    def _with_room(self, blocks: Any, sizes: Sizes, x: Any, reduce: str | None = None) -> PaddedBatch:
        """Memory that the mini-batch fits: what there is, or more. ``reduce``: of a first block that is summed."""
        import torch

        inputs = self._inputs
        if inputs is None or not self._fits(blocks, sizes, reduce, x.shape[1]):
            if self.on_gpu:
                # Steps may still read what is let go of. To wait for the whole device fails while a thread captures.
                self._under_way.synchronize()
            self._graphs.clear()
            _keep_state_on_gpu(self.optimizer)  # a checkpoint that was loaded may have brought another one
            room = sizes.with_room(self.room)
            inputs = PaddedBatch(room, has_weights(blocks), x, self.labels)
            lengths = None
            if reduce is not None:
                lengths = torch.zeros(room.nodes[0], dtype=torch.float32, device="cuda")
            # Once all of it is there: without memory for a part the step has what it had.
            self.room, self._inputs, self._reduce, self._lengths = room, inputs, reduce, lengths
            has_norms = any(isinstance(m, torch.nn.BatchNorm1d) for m in self.model.modules())
            self._real_rows = {n: inputs.counts[i] for i, n in enumerate(room.nodes)} if has_norms else {}
        return inputs


def _apart(blocks: Any) -> tuple[Any, Any]:
    """The first block if it is summed, else None; the others."""
    return (blocks[0], blocks[1:]) if isinstance(blocks[0], SummedBlock) else (None, blocks)


@contextlib.contextmanager
def _capture(graph: Any, stream: Any) -> Iterator[None]:
    """Capture what the block launches on ``stream``, while other threads allocate, free, launch and capture.

    ``torch.cuda.graph`` waits for the whole device before it begins. CUDA refuses that, and so ends the run, while
    another thread captures, as samplers do whenever their memory grows.
    """
    import torch

    # No memory can be given back during a capture, and a graph takes its own: what earlier work has left is released.
    torch.cuda.empty_cache()
    with without_collection(), torch.cuda.stream(stream), streams.torch_stream():
        take_workspaces()
        stream.synchronize()
        graph.capture_begin(capture_error_mode="relaxed")
        try:
            yield
        finally:
            graph.capture_end()


class _Captured:
    """One captured step, with the memory of what it returns."""

    def __init__(self, step: Callable[[], tuple[Any, Any]], model: Any, stream: Any) -> None:
        import torch

        self.graph = torch.cuda.CUDAGraph()
        for p in model.parameters():
            p.grad = None  # the graph has gradients of its own
        with _capture(self.graph, stream):
            try:
                self.results = step()
            except RuntimeError as error:
                if "legacy stream" in str(error):
                    error.add_note(_KEPT)
                raise
        self.gradients = [(p, p.grad) for p in model.parameters()]
        # Memory that the graph reads and writes, also where a parameter has another since.
        self._memory = [t.data for t in (*model.parameters(), *model.buffers())]
        self._copies = _Copies(self.results[0])

    def replay(self) -> tuple[Any, Any]:
        self.graph.replay()
        for p, grad in self.gradients:
            p.grad = grad
        # The next replay writes others in their places.
        loss, weight = self.results
        kept = self._copies.make()
        return kept, kept if weight is loss else weight.clone()


class _Copies:
    """Copies of a loss that each replay writes anew. Their memory is taken for many at once: ``clone`` takes several
    times as long as the copy.

    Args:
        loss: a tensor on the GPU, of a few bytes.
    """

    AT_ONCE = 256

    def __init__(self, loss: Any) -> None:
        self._loss = loss
        self._left: dict[int, list[Any]] = {}

    def make(self) -> Any:
        """A copy on CuPy's current stream, which is torch's; nothing waits."""
        import cupy
        import torch

        stream = int(cupy.cuda.get_current_stream().ptr)
        left = self._left.get(stream)
        if not left:  # PyTorch's memory belongs to the stream on which it is taken
            with torch.inference_mode(False):
                many = self._loss.new_empty((self.AT_ONCE, *self._loss.shape))
            # `data`, since a view would share with the others what autograd knows of changes in place.
            left = self._left[stream] = [one.data for one in many]
        copy = left.pop()
        size = self._loss.numel() * self._loss.element_size()
        cupy.cuda.runtime.memcpyAsync(copy.data_ptr(), self._loss.data_ptr(), size, _WITHIN_DEVICE, stream)
        return copy


class _Contents:
    """What a captured step depends on of a model, read anew at each call.

    Args:
        model: a module of PyTorch.
    """

    HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")

    def __init__(self, model: Any) -> None:
        import torch

        self.model = model
        self._usual = vars(torch.nn.Module()).keys() - {"training"}
        self._states: list[dict[str, Any]] = []
        self._sizes: list[int] = []
        self._places: list[tuple[dict[str, Any], str]] = []
        self._names: tuple[str, ...] = ()

    def key(self) -> tuple[Any, ...]:
        """Which parameters are frozen, where they and buffers lie, hooks, and the modules' attributes: numbers (whether
        they train, dropout, momentum), strings, functions, and tuples of them; of others that they are there."""
        states = _states(self.model)
        sizes = [*map(len, states)]
        # Attributes are looked for where one came or went: to look through all of them takes twice as long as the rest.
        if sizes != self._sizes or not all(map(operator.is_, states, self._states)):
            self._states, self._sizes = states, sizes
            self._places = [(of, name) for of in states for name in of if name not in self._usual]
            self._names = tuple([name for _, name in self._places])
        parameters = [p for of in states for p in of["_parameters"].values() if p is not None]
        buffers = [b for of in states for b in of["_buffers"].values() if b is not None]
        hooks = [number for of in states for kind in self.HOOKS for number in of[kind]]
        values = [of.get(name) for of, name in self._places]
        return (
            tuple([p.requires_grad for p in parameters]),
            tuple([t.data_ptr() for t in (*parameters, *buffers)]),
            tuple(hooks),
            self._names,
            tuple([v if type(v) in _PLAIN or _is_plain(v) else None for v in values]),
        )


def _states(model: Any) -> list[dict[str, Any]]:
    """The attributes of a module and of all inside it. ``modules()`` takes four times as long."""
    found = [_state(model)]
    for state in found:
        children = state["_modules"]
        if children:
            found += [_state(child) for child in children.values() if child is not None]
    return found


def _state(module: Any) -> dict[str, Any]:
    """The attributes of one module; a traced one's are those of the module inside it."""
    state = vars(module)
    return state if "_modules" in state else vars(state["_actual_script_module"])


def _is_plain(value: Any) -> bool:
    """Whether a value is one of those that are compared, or a tuple of them."""
    return type(value) in _PLAIN or (type(value) is tuple and all(map(_is_plain, value)))


class _Same:
    """An object that is equal to itself alone. It is kept: another one could get its address."""

    def __init__(self, of: Any) -> None:
        self.of = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.of is other.of

    def __hash__(self) -> int:
        return id(self.of)


def kept_in_place(optimizer: Any, kept: dict[tuple[int, str], Any]) -> bool:
    """Have the optimizer's tensors, such as learning rates, lie where captured steps read them.

    A setting that has become another tensor, or a number, is written to the one that is kept, which takes its place
    again; tensors that are new are kept from now on.

    Args:
        optimizer: of PyTorch.
        kept: number of the group and name -> the tensor that captured steps read; changed.

    Returns:
        Whether captured steps are still right. They are not where a setting no longer fits its tensor, or where
        another group goes on with the same one.
    """
    import torch

    right = True
    for number, group in enumerate(optimizer.param_groups):
        for name, value in group.items():
            at, is_tensor = (number, name), isinstance(value, torch.Tensor)
            before = kept.get(at)
            if before is None or value is before:
                if is_tensor:
                    kept[at] = value
                continue
            shared = any(other is before for place, other in kept.items() if place != at)
            fits = isinstance(value, (int, float)) or (is_tensor and value.shape == before.shape)
            if shared or not fits:
                right = False
                if not is_tensor:
                    del kept[at]
                    continue
                kept[at] = group[name] = value.detach().to(before.device, before.dtype)
                continue
            with torch.no_grad():
                before.copy_(value) if is_tensor else before.fill_(value)
            group[name] = before
    return right


def forget_oldest(graphs: dict[Any, Any], most: int, settle: Callable[[], None]) -> None:
    """Drop all entries but the last ``most``, after ``settle``, which waits until none is under way."""
    if len(graphs) > most:
        settle()
        while len(graphs) > most:
            del graphs[next(iter(graphs))]


def _objects(optimizer: Any) -> list[Any]:
    """The objects that settings are made of: while they are the same ones, settings are, too."""
    found = [next(iter(optimizer.state.values()), None)]
    for group in optimizer.param_groups:
        found += group.values()
    return found


def _settings(optimizer: Any) -> tuple[Any, ...]:
    """What a captured step has of the optimizer: settings that are no tensors, and where its state lies."""
    state = next(iter(optimizer.state.values()), None)
    return _Same(state), *(
        (name, value)
        for group in optimizer.param_groups
        for name, value in group.items()
        if isinstance(value, (int, float, bool, str, tuple))
    )


def _keep_state_on_gpu(optimizer: Any) -> None:
    """Have the optimizer keep steps and learning rates on the GPU.

    Raises:
        ValueError: it cannot.
    """
    import torch

    for group in optimizer.param_groups:
        if "capturable" in group:
            group["capturable"] = True
            device = group["params"][0].device
            group["lr"] = torch.as_tensor(group["lr"], dtype=torch.float32).to(device)
            for p in group["params"]:
                step = optimizer.state.get(p, {}).get("step")
                if step is not None:
                    optimizer.state[p]["step"] = torch.as_tensor(step, dtype=torch.float32).to(device)
        elif not isinstance(optimizer, torch.optim.SGD):
            raise ValueError(
                "optimizer must be able to keep its state on the GPU, as Adam and SGD do "
                f"(got {type(optimizer).__name__})"
            )


@contextlib.contextmanager
def _masked_norms(model: Any, counted: dict[int, Any]) -> Iterator[None]:
    """Inside the block ``BatchNorm1d`` counts the real rows alone."""
    import torch

    norms = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm1d)]
    for norm in norms:
        norm.forward = lambda x, norm=norm: masked_norm(norm, x, counted.get(x.shape[0]))
    try:
        yield
    finally:
        for norm in norms:
            del norm.forward


def masked_norm(norm: Any, x: Any, count: Any) -> Any:
    """``norm(x)`` for ``x`` of which the first ``count`` rows are real.

    Args:
        norm: a ``BatchNorm1d``.
        x: ``[rows, features]``.
        count: a tensor of no dimension on the device of ``x``; None: all rows.
    """
    import torch

    if count is None or not (norm.training or norm.running_mean is None):
        return type(norm).forward(norm, x)
    real = (torch.arange(len(x), device=x.device) < count).unsqueeze(1)
    mean = torch.where(real, x, 0).sum(0) / count
    centred = torch.where(real, x - mean, 0)
    variance = (centred * centred).sum(0) / count
    if norm.training and norm.track_running_stats and norm.running_mean is not None:
        with torch.no_grad():
            norm.num_batches_tracked.add_(1)
            share = 1 / norm.num_batches_tracked if norm.momentum is None else norm.momentum
            unbiased = variance * (count / (count - 1).clamp(min=1))
            norm.running_mean.mul_(1 - share).add_(mean * share)
            norm.running_var.mul_(1 - share).add_(unbiased * share)
    out = centred * torch.rsqrt(variance + norm.eps)
    if norm.affine:
        out = out * norm.weight + norm.bias
    return out
