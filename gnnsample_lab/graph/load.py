"""``lab.load``: a graph by name, from disk, from our cache, from the network, or generated."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import warnings
from pathlib import Path
from typing import Any

from gnnsample_lab.checks import flag, flag_or, real, text, whole
from gnnsample_lab.checks import seed as checked_seed
from gnnsample_lab.device import runtime
from gnnsample_lab.graph import cache, catalogue, locate, roots
from gnnsample_lab.graph.edgewise import synthetic
from gnnsample_lab.graph.errors import (
    CorruptDataError,
    DatasetNotFoundError,
    DownloadError,
    UnknownDatasetError,
)
from gnnsample_lab.graph.graph import Graph
from gnnsample_lab.graph.lacks import lacking, what_is_missing
from gnnsample_lab.graph.sources import formats, node_data
from gnnsample_lab.graph.sources import ogb as ogb_source
from gnnsample_lab.graph.sources import snap as snap_source
from gnnsample_lab.graph.sources.download import download as fetch
from gnnsample_lab.graph.sources.download import unzip
from gnnsample_lab.graph.sources.locks import exclusive
from gnnsample_lab.graph.twins import twin as twins

DEFAULT_DATASET = "ogbn-arxiv"

_lock = threading.RLock()  # two widgets asking for one dataset at once must not both download it


def load(
    name: str,
    root: str | os.PathLike[str] | None = None,
    download: bool = True,
    scale: float = 1.0,
    seed: int = 0,
    *,
    device: str = "cpu",
    undirected: bool | None = None,
    features: bool | str = "auto",
    weighted: bool = False,
    use_cache: bool = True,
    progress: bool = True,
    version: int = twins.VERSION,
) -> Graph:
    """Load a graph by name; :func:`gnnsample_lab.datasets` lists the names.

    What is asked for is what is returned: no other dataset is ever substituted (see :func:`load_or_twin`).
    Data is searched in ``<root>/<name>``, ``<root>/ogb/<ogb name>``, ``<root>/snap/`` and the folders that the
    sources' own tools and archives make. The first load converts it to a memory-mapped cache in the root, or in
    the user's cache folder when the root is read-only; later loads open that in well under a second.

    Args:
        name: ``"ogbn-..."`` and ``"ogbl-..."`` (homogeneous OGB), ``"reddit"``, GraphSAINT's ``"flickr"``,
            ``"yelp"`` and ``"amazon"``, Planetoid's ``"cora"``, ``"citeseer"`` and ``"pubmed"``, gnn-benchmark's
            ``"cora-full"``, ``"coauthor-cs"``, ``"physics"``, ``"amazon-computers"`` and ``"amazon-photo"``,
            ``"musae-facebook"``, ``"musae-git"`` and ``"musae-twitch-de"``, ``"snap:<path or name>"``, a synthetic
            twin such as ``"arxiv-like"``, or ``"rmat"``. The ids of a SNAP list are compacted: the vertices that occur
            become ``0 .. N-1`` in the order of their ids.
        root: data folder; else ``LAB_DATA_ROOT``, else the checkout's or the user's data folder.
        download: fetch what is missing; False raises instead.
        scale: synthetic graphs only: shrink (or grow) vertices and edges by this factor.
        seed: of synthetic graphs, of random weights, and of splits that are "ours": where a source defines none
            (column ``splits`` of :func:`gnnsample_lab.datasets`), 60, 20 and 20 percent of the labelled vertices.
        device: where the arrays lie: ``"cpu"`` (NumPy, memory-mapped), ``"cuda"`` (CuPy) or ``"auto"``.
            Synthetic graphs are generated on the GPU when there is one, whatever this says.
        undirected: None takes the dataset's own convention: SNAP lists get reverse edges, OGB follows its
            ``add_inverse_edge``. True and False override it (for OGB and SNAP's edge lists only).
        features: False leaves node features out; ``"auto"`` does so for generated features above 4 GiB.
            ``"raw"`` gives all columns of the MUSAE graphs, 0 or 1, where True gives 128 hashed ones (rows of
            length 1); for every other graph it is the same as True.
        weighted: give every edge a random weight in [1, 5) where the dataset has none. A SNAP list has weights where
            its third column, if any, begins with a number: then every line must have one, finite and not negative.
            Undirected, the first weight of an edge that is listed several times stays, and a reverse that is not
            listed gets that of its edge. A third column of anything else and further columns are not read, and with
            ``weighted=False`` no third one.
        use_cache: False neither reads nor writes our cache.
        progress: show progress bars.
        version: of the generator of a twin. 2 gives the graphs that earlier records were measured on, edge for edge;
            graphs that are no twins have no other version than the default.

    Raises:
        UnknownDatasetError (a LookupError): no such name.
        DatasetNotFoundError (a FileNotFoundError): not there, and ``download`` is False or it has no source.
        DownloadError, PermissionError (OSErrors): the network failed, the root cannot be written to.
        CorruptDataError (a ValueError): cut-off or damaged files.
        ValueError, TypeError: bad arguments, naming them.
        MemoryError, RuntimeError: ``device="cuda"``, and the graph does not fit or there is no GPU; MemoryError also
            where ``features="raw"`` does not fit, and where a twin does not, naming a ``scale`` that does.
    """
    text("name", name)
    scale = real("scale", scale, above=0)
    seed = checked_seed(seed)
    version = _version(version)
    for argument, given in (
        ("download", download), ("weighted", weighted), ("use_cache", use_cache), ("progress", progress)
    ):  # fmt: skip
        flag(argument, given)
    if undirected is not None:
        undirected = flag("undirected", undirected)
    features = flag_or("features", features, "auto", "raw")
    target = runtime.resolve_device(device)
    base = roots.data_root(root)
    kind = _kind(name)
    if scale != 1.0 and kind not in catalogue.GENERATED:
        raise ValueError(f"scale must be 1 for {name!r}, which is not synthetic (got {scale})")
    if version != twins.VERSION and kind != "synthetic":
        raise ValueError(
            f"version must be {twins.VERSION}, the default, for {name!r}, which is no twin (got {version})"
        )
    if undirected is not None and kind not in ("ogb", "snap"):
        raise ValueError(
            f"undirected must be None for {name!r}, whose directions are fixed (got {undirected})"
        )
    with _lock:
        if kind in catalogue.GENERATED:
            columns = features == "raw" or features
            use_cache = use_cache and not _on_gpu(target)
            if kind == "synthetic" and version == twins.VERSION:
                return _load_twin(name, base, scale, seed, columns, weighted, target, use_cache)
            return _load_synthetic(name, kind, base, scale, seed, columns, weighted, target, use_cache)
        if kind == "ogb":
            graph = _load_ogb(name, base, download, undirected, use_cache, progress)
        elif kind == "snap":
            graph = _load_snap(name, base, download, undirected is not False, weighted, use_cache, progress)
        else:
            graph = _load_files(name, base, download, features, seed, use_cache, progress)
    if features is False and graph.feat is not None:
        graph = _replaced(graph, feat=None)
    if weighted and graph.edge_weight is None:
        graph = synthetic.random_weights(graph, seed=seed)
    return graph.to(target)


def load_or_twin(
    name: str, root: str | os.PathLike[str] | None = None, *, scale: float = 1.0, seed: int = 0, device: str
        = "cpu", weighted: bool = False, progress: bool = True, version: int = twins.VERSION,
) -> Graph:  # fmt: skip
    """``load(name)``, or its synthetic twin where neither the data nor the network is there.

    The twin has ``is_synthetic=True`` and says so in its ``title``; a warning tells why. A dataset that
    ``LAB_DATASET`` names was chosen by the user and is not substituted.

    Args:
        name, root, seed, device, weighted, progress: as for :func:`load`.
        scale, version: of the twin.

    Raises:
        UnknownDatasetError (a LookupError): no such name.
        DatasetNotFoundError, DownloadError, PermissionError (OSErrors): not to be had, and there is no twin.
        CorruptDataError, ValueError, TypeError, MemoryError, RuntimeError: as :func:`load`.
    """
    graph, why = _load_or_twin(name, root, scale, seed, device, weighted, progress, version)
    if why:
        warnings.warn(why, stacklevel=2)
    return graph


def _load_or_twin(
    name: str, root: str | os.PathLike[str] | None, scale: float, seed: int, device: str, weighted: bool,
        progress: bool, version: int,
) -> tuple[Graph, str]:  # fmt: skip
    """The graph, and one line that says why it is a twin; an empty one where it is what was asked for."""
    scale = real("scale", scale, above=0)
    version = _version(version)
    try:
        return load(name, root, device=device, seed=seed, weighted=weighted, progress=progress), ""
    except (DatasetNotFoundError, DownloadError, PermissionError) as error:
        twin = None if os.environ.get("LAB_DATASET") == name else catalogue.entry(name).get("twin")
        if twin is None:
            raise
        graph = load(
            twin, root, scale=scale, seed=seed, device=device, weighted=weighted, progress=progress,
            version=version,
        )  # fmt: skip
        return graph, f"{name} is not here ({error}); using its synthetic twin {twin} instead"


def load_default(
    name: str | None = None, root: str | os.PathLike[str] | None = None, *, default: str = DEFAULT_DATASET,
    scale: float = 1.0, seed: int = 0, device: str = "cpu", weighted: bool = False, progress: bool = True,
    version: int = twins.VERSION,
) -> Graph:  # fmt: skip
    """The graph that a notebook starts with.

    ``name``, else the environment variable ``LAB_DATASET``: loaded as asked, never replaced by another. Else
    ``default``, or its synthetic twin (at ``scale``) where neither the data nor the network is there. A line of
    output says so, and another one names what the graph lacks of features, labels and a training split.

    Args:
        name: as for :func:`load`, or None.
        root, seed, device, weighted: as for :func:`load`.
        progress: as for :func:`load`; False leaves out these lines, too.
        default: what to load where nobody names a graph.
        scale: of a synthetic graph, also of the twin.
        version: of the generator of a twin, whoever names the twin; it says nothing to other graphs.

    Raises:
        UnknownDatasetError (a LookupError): no such name.
        DatasetNotFoundError, DownloadError, PermissionError (OSErrors): not to be had, and there is no twin.
        CorruptDataError, ValueError, TypeError, MemoryError, RuntimeError: as :func:`load`.
    """
    text("default", default)
    scale, version = real("scale", scale, above=0), _version(version)
    if name is not None:
        text("name", name)
    named = name or os.environ.get("LAB_DATASET")
    options: dict[str, Any] = {"seed": seed, "device": device, "weighted": weighted, "progress": progress}
    kind = _kind(named or default)
    if kind in catalogue.GENERATED:
        options["scale"] = scale
    if kind == "synthetic":
        options["version"] = version
    if named or kind in catalogue.GENERATED:
        graph, why = load(named or default, root, **options), ""
    else:
        graph, why = _load_or_twin(default, root, scale=scale, version=version, **options)
    if progress:
        # Printed, not warned of: on a machine without the data this is how every notebook begins.
        seeds = " Seeds are drawn from all vertices." if "training split" in lacking(graph) else ""
        for line in (why, what_is_missing(graph) + seeds):
            print(line, end="\n" if line else "")
    return graph


def _version(version: int) -> int:
    return whole("version", version, synthetic.GENERATOR_VERSION, twins.VERSION)


def _kind(name: str) -> str:
    if name.startswith("snap:"):
        return "snap"
    if name.startswith(("ogbn-", "ogbl-")):
        try:
            ogb_source.info(
                name
            )  # an unknown or heterogeneous name is an error here, before anything is searched
        except UnknownDatasetError as error:
            with contextlib.suppress(UnknownDatasetError):
                return str(catalogue.entry(name)["kind"])
            raise error
        return "ogb"
    return str(catalogue.entry(name)["kind"])


def _on_gpu(target: str) -> bool:
    """Whether synthetic graphs are generated on a GPU, which does so faster than a disk reads them."""
    return target == "cuda" or (os.environ.get("LAB_DEVICE") != "cpu" and runtime.cuda_available())


def _load_twin(
    name: str, base: Path, scale: float, seed: int, features: bool | str, weighted: bool, target: str,
        use_cache: bool,
) -> Graph:  # fmt: skip
    from gnnsample_lab.graph.twins import recipes

    synthetic.check_scale(catalogue.entry(name), scale)
    statistics = recipes.stored(name)

    def build() -> Graph:
        return twins.generate(
            statistics, scale=scale, seed=seed, features=features, device=target, name=name, weighted=weighted
        )

    num_features = (statistics.get("features") or {}).get("count", 0)
    with_features = synthetic.wants_features(round(statistics["num_nodes"] * scale), num_features, features)
    stamp = cache.fingerprint([twins.VERSION, name, statistics, scale, seed, with_features, weighted])
    return cache.cached(base, name, stamp, build, use_cache)


def _load_synthetic(
    name: str, kind: str, base: Path, scale: float, seed: int, features: bool | str, weighted: bool, target:
        str, use_cache: bool,
) -> Graph:  # fmt: skip
    """R-MAT, or a twin of version 2."""
    entry = catalogue.entry(name)
    recipe = entry["version_2" if kind == "synthetic" else "recipe"]
    synthetic.check_scale(entry, scale)

    def build() -> Graph:
        if kind == "synthetic":
            return synthetic.twin(
                entry, scale=scale, seed=seed, features=features, weighted=weighted, device=target
            )
        num_nodes = max(synthetic.MIN_NODES, round(entry["num_nodes"] * scale))
        draws = recipe["num_draws"]
        edges = None
        if draws is None:
            edges = max(1, min(round(entry["num_edges"] * scale), num_nodes * (num_nodes - 1) // 4))
        else:
            draws = max(1, round(draws * scale))
        return synthetic.rmat(
            num_nodes, draws, num_edges=edges, weighted=weighted, seed=seed, device=target, name=name
        )

    with_features = synthetic.wants_features(
        round(entry["num_nodes"] * scale), entry.get("num_features") or 0, features
    )
    sizes = {k: entry.get(k) for k in ("num_nodes", "num_edges", "num_features", "num_classes", "num_train")}
    stamp = cache.fingerprint(
        [
            synthetic.GENERATOR_VERSION,
            name,
            sizes,
            entry["directed"],
            recipe,
            scale,
            seed,
            with_features,
            weighted,
        ]
    )
    return cache.cached(base, name, stamp, build, use_cache)


def _load_ogb(
    name: str, base: Path, download: bool, undirected: bool | None, use_cache: bool, progress: bool
) -> Graph:
    meta = ogb_source.info(name)
    folder = locate.ogb_folder(name, base) or _fetch_ogb(name, meta, base, download, progress)
    files = ogb_source.source_files(folder, meta)
    stamp = cache.fingerprint(["ogb", name, undirected, [cache.file_stamp(f) for f in files]])

    def build() -> Graph:
        # Looked up only when needed: probing for a writable folder creates it.
        scratch = roots.cache_folder(base) if meta.is_binary else None
        return ogb_source.read(folder, meta, undirected=undirected, scratch=scratch)

    return cache.cached(base, name, stamp, build, use_cache)


def _fetch_ogb(name: str, meta: ogb_source.OgbInfo, base: Path, download: bool, progress: bool) -> Path:
    """The folder of an OGB dataset, from an archive that the user put there, or from the network."""
    given = next((a for a in locate.ogb_archives(name, base) if a.is_file()), None)
    if given is None and not download:
        raise DatasetNotFoundError(_not_found(name, locate.ogb_folders(name, base)))
    folder = base / "ogb" / meta.folder
    with roots.without_empty_folders(folder.parent):
        return _make_ogb(name, meta, base, folder, given, progress)


def _make_ogb(
    name: str, meta: ogb_source.OgbInfo, base: Path, folder: Path, given: Path | None, progress: bool
) -> Path:
    roots.require_writable(folder.parent, f"unpacking {given.name}" if given else f"downloading {meta.url}")
    with exclusive(folder):
        found = locate.ogb_folder(name, base)  # another process may have made it meanwhile
        if found is not None:
            return found
        if given is not None:
            try:
                unzip(given, folder, meta.archive_folder, progress=progress)
            except CorruptDataError as error:
                raise CorruptDataError(f"{error}; remove it to download it again") from error
        else:
            _fetch_zip(meta.url, locate.ogb_archives(name, base)[0], folder, meta.archive_folder, progress)
    if not ogb_source.is_complete(folder, meta):
        raise DatasetNotFoundError(f"{given or meta.url} was unpacked, but {folder} has no {meta.key_file}")
    return folder


def _fetch_zip(url: str, archive: Path, folder: Path, inner: str | None, progress: bool) -> None:
    """Download and unpack; the caller holds the lock of ``folder``.

    The archive has a name of its own until it is unpacked: a run that is killed in between leaves what the next one
    knows for ours and removes.
    """
    archive = archive.with_name(f"{archive.name}.downloaded")
    if not archive.is_file():
        fetch(url, archive, progress=progress)
    try:
        unzip(archive, folder, inner, progress=progress)
    except CorruptDataError as error:
        archive.unlink()
        raise CorruptDataError(f"{error}; it was removed, call again to download it from {url}") from error
    archive.unlink()


def _load_snap(
    name: str, base: Path, download: bool, undirected: bool, weighted: bool, use_cache: bool, progress: bool
) -> Graph:
    target = name.removeprefix("snap:")
    if not target:
        raise UnknownDatasetError(f"name must be snap:<path or name> (got {name!r})")
    path = locate.snap_file(target, base)
    if path is None:
        url = catalogue.entries().get(name, {}).get("url")
        if url is None or not download:
            candidates = locate.snap_candidates(target, base)
            why = "" if url else "; the catalogue knows no address for it"
            raise DatasetNotFoundError(_not_found(name, [candidates[0].parent, base, candidates[-1]]) + why)
        path = fetch(url, base / "snap" / f"{target}.txt.gz", progress=progress)
    # A list that is asked for without its weights, or has none, is cached once.
    own_weights = weighted and snap_source.has_weights(path)
    parts = ["snap", snap_source.VERSION, str(path), cache.file_stamp(path), undirected]
    stamp = cache.fingerprint([*parts, "weights"] if own_weights else parts)
    graph = cache.cached(
        base, path.name.split(".")[0], stamp,
        lambda: snap_source.read(path, undirected=undirected, weighted=own_weights, name=name), use_cache,
    )  # fmt: skip
    # One file has several names, and its cache the one that was asked for first.
    return graph if graph.name == name else _replaced(graph, name=name)


def _load_files(
    name: str, base: Path, download: bool, features: bool | str, seed: int, use_cache: bool, progress: bool
) -> Graph:
    entry = catalogue.entry(name)
    key = formats.find(entry, base) or _fetch_files(entry, base, download, progress)
    source = formats.FORMATS[entry["format"]]
    raw = features == "raw" and "raw_features" in entry
    stamp = cache.fingerprint(
        [formats.VERSION, name, raw, [cache.file_stamp(f) for f in source.files(key, entry) if f.exists()]]
    )
    graph = cache.cached(base, name, stamp, lambda: formats.read(key, entry, raw), use_cache)
    if entry.get("splits") == "ours" and graph.label is not None:
        graph = _replaced(graph, splits=node_data.our_splits(graph.label, seed))
    return graph


def _fetch_files(entry: catalogue.Entry, base: Path, download: bool, progress: bool) -> Path:
    """The key file of a data set, from an archive that the user put there, or from the network."""
    name, url = entry["name"], entry["url"]
    given = next((a for a in formats.archives(entry, base) if a.is_file()), None)
    if given is None and not download:
        raise DatasetNotFoundError(_not_found(name, formats.folders(entry, base)))
    folder = base / name
    inner = None
    if given is not None and given.parent == folder:
        folder, inner = (
            folder / given.stem,
            given.stem,
        )  # what unpacks as the folder would move the archive away
    if given is None and not url.endswith(".zip"):
        for file_name, address in formats.addresses(entry).items():
            fetch(address, folder / file_name, progress=progress)
    else:
        with roots.without_empty_folders(base):
            roots.require_writable(base, f"unpacking {given.name}" if given else f"downloading {url}")
            with exclusive(folder):
                if formats.find(entry, base) is None:  # another process may have made it meanwhile
                    _make_files(url, given, formats.archives(entry, base)[0], folder, inner, progress)
    key = formats.find(entry, base)
    if key is None:
        wanted = formats.FORMATS[entry["format"]].keys(entry)[0]
        raise DatasetNotFoundError(f"{given or url} was brought to {folder}, but it holds no {wanted}")
    return key


def _make_files(
    url: str, given: Path | None, archive: Path, folder: Path, inner: str | None, progress: bool
) -> None:
    if given is None:
        _fetch_zip(url, archive, folder, None, progress)
        return
    try:
        unzip(given, folder, inner, progress=progress)
    except CorruptDataError as error:
        raise CorruptDataError(f"{error}; remove it to download it again") from error


def _replaced(graph: Graph, **parts: Any) -> Graph:
    """The graph with other node data; what is known of its topology stays known."""
    changed = dataclasses.replace(graph, **parts, validate=False)
    changed._known.update(graph._known)
    return changed


def _not_found(name: str, searched: list[Path]) -> str:
    places = ", ".join(dict.fromkeys(str(p) for p in searched))
    return (
        f"dataset {name!r} was not found in {places}; pass download=True, or root= (or LAB_DATA_ROOT) with "
        "the folder that holds it"
    )
