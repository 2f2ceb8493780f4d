"""Which source a suite runs, and a hash of it: what a record is known by where its commit is not.

The source of a suite is what its function's module reaches by imports, those inside functions and through the packages
that load lazily too, with the CUDA sources that these modules name and the headers that those include. Nothing is
listed by hand. Comments, docstrings and formatting do not count; one changed operator does.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnsample_lab.resources import PACKAGE_ROOT

FORWARDERS = frozenset({"gnnsample_lab.lazy", "gnnsample_lab.bench.suite"})
"""Modules that import by a name which others give them; what they import is found where the name stands. Any other
module that does so reaches all modules of its folder."""
_DIGITS = 16
_SAYS_NOTHING = ("ctx", "kind", "type_comment")
"""Fields of Python's syntax trees that follow from others, or are comments."""
_CUDA = re.compile(r"[\w/]+\.cuh?")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)
_CUDA_TOKEN = re.compile(
    r'(?P<kept>//[ \t]*@[^\n]*)|(?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)'
    r'|(?P<text>"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\')|(?P<line>[ \t]*\n\s*)|(?P<blank>(?:[ \t]|\\\n)+)',
    re.DOTALL,
)  # fmt: skip


# ---- what of a file counts -------------------------------------------------------------------------------------------


def stripped_python(text: str) -> str:
    """The program in ``text`` without comments, docstrings and formatting; the same under every version of Python."""
    return _written(ast.parse(text))


def _written(tree: ast.AST) -> str:
    parts: list[str] = []
    _write(tree, parts)
    return "".join(parts)


def _write(node: Any, parts: list[str]) -> None:
    if isinstance(node, list):
        parts.append("[")
        for item in node:
            if not _is_docstring(item):
                _write(item, parts)
                parts.append(",")
        parts.append("]")
    elif isinstance(node, ast.AST):
        parts.append(f"{type(node).__name__}(")
        for name in node._fields:
            value = getattr(node, name, None)
            # Empty fields are left out: versions of Python differ in which of them there are.
            if value is not None and value != [] and name not in _SAYS_NOTHING:
                parts.append(f"{name}=")
                _write(value, parts)
                parts.append(",")
        parts.append(")")
    else:
        parts.append(repr(node))


def _is_docstring(node: Any) -> bool:
    """A string that stands alone as a statement: the docstring of a module, class, function or constant."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def stripped_cuda(text: str) -> str:
    """CUDA source without comments and with one blank for many. Lines ``// @...`` say how a kernel is compiled and
    launched, so they stay."""

    def shortened(match: re.Match[str]) -> str:
        if match["comment"] is not None or match["blank"] is not None:
            return " "
        return "\n" if match["line"] is not None else match[0]

    # A removed comment leaves blanks, which count no more than others.
    once = _CUDA_TOKEN.sub(shortened, text)
    return _CUDA_TOKEN.sub(shortened, once).strip()


@functools.cache
def _digest(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    program = _written(_parsed(path)) if path.suffix == ".py" else stripped_cuda(text)
    return hashlib.sha256(program.encode()).hexdigest()


# ---- what a module reaches -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tree:
    """Packages in which source is looked for.

    Args:
        roots: name of a package -> its folder.
    """

    roots: tuple[tuple[str, Path], ...]

    def file(self, module: str) -> Path | None:
        """The file of a module by its full name; None for modules of other packages and names that are none."""
        package, *rest = module.split(".")
        folder = dict(self.roots).get(package)
        if folder is None:
            return None
        path = folder.joinpath(*rest)
        return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()), None)

    def resolve(self, dotted: str) -> str | None:
        """The module in which ``package.module.name`` is defined, through packages that forward it lazily."""
        package, *parts = dotted.split(".")
        if self.file(package) is None:
            return None
        found = package
        for i, part in enumerate(parts):
            if self.file(f"{found}.{part}"):
                found = f"{found}.{part}"
                continue
            path = self.file(found)
            home = _forwarded(path).get(part) if path and path.name == "__init__.py" else None
            return found if home is None else self.resolve(".".join([found, home, *parts[i:]]))
        return found

    def _imports(self, module: str) -> Iterator[str]:
        """Dotted names that ``module`` imports, also inside functions, but not for types alone."""
        path = self.file(module)
        assert path is not None
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        tree = _parsed(path)
        names: dict[str, str] = {}
        for node in _running(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    names[alias.asname or alias.name.split(".")[0]] = alias.name if alias.asname else ""
                    if not self._is_package(alias.name):
                        yield alias.name
            elif isinstance(node, ast.ImportFrom):
                above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                base = ".".join([*above, *filter(None, [node.module])])
                for alias in node.names:
                    yield f"{base}.{alias.name}"
                    if self._is_package(f"{base}.{alias.name}"):
                        names[alias.asname or alias.name] = f"{base}.{alias.name}"
            elif isinstance(node, ast.Call) and _called(node) == "import_module" and module not in FORWARDERS:
                literal = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
                yield from self._room(str(literal) if literal else package)
        # Of a package that was imported whole, what is used of it: `lab.distributed.partition`.
        for node in ast.walk(tree):
            dotted = _dotted(node)
            if dotted:
                first, _, rest = dotted.partition(".")
                if rest and names.get(first) and self._is_package(names[first]):
                    yield f"{names[first]}.{rest}"

    def _is_package(self, name: str) -> bool:
        path = self.file(name)
        return path is not None and path.name == "__init__.py"

    def _room(self, package: str) -> Iterator[str]:
        """All modules below a package."""
        path = self.file(package)
        if path is not None:
            for each in path.parent.rglob("*.py"):
                inside = each.relative_to(path.parent).with_suffix("").parts
                yield ".".join([package, *(part for part in inside if part != "__init__")])

    def _kernels(self, module: str) -> Iterator[Path]:
        """CUDA sources that a module names: by their path in the package or the end of it."""
        path = self.file(module)
        assert path is not None
        root = dict(self.roots)[module.split(".")[0]]
        known = _cuda_files(root)
        for node in ast.walk(_parsed(path)):
            if not (
                isinstance(node, ast.Constant) and isinstance(node.value, str) and _CUDA.fullmatch(node.value)
            ):
                continue
            ending = "/" + node.value.lstrip("/")
            found = [each for each in known if f"/{each.relative_to(root).as_posix()}".endswith(ending)]
            near = [each for each in found if _layer(each, root) == _layer(path, root)]
            yield from near or found

    @functools.cache  # noqa: B019 -- one tree for the life of the process; a suite's modules are those of its neighbours
    def _reached(self, module: str) -> tuple[frozenset[str], frozenset[Path]]:
        """The modules that a module imports, and its own file with the CUDA sources that it names."""
        path = self.file(module)
        assert path is not None
        files = {path}
        _digest(path)  # now, while it is parsed
        for source in self._kernels(module):
            _with_headers(source, dict(self.roots)[module.split(".")[0]], files)
        found = (self.resolve(name) for name in set(self._imports(module)))
        return frozenset(each for each in found if each is not None), frozenset(files)

    def closure(self, start: str) -> frozenset[Path]:
        """Files of all modules and CUDA sources that module ``start`` reaches, with its own."""
        seen: set[str] = set()
        files: set[Path] = set()
        todo = {start}
        while todo:
            module = todo.pop()
            seen.add(module)
            imported, own = self._reached(module)
            files |= own
            todo |= imported - seen
        return frozenset(files)


@functools.lru_cache(4)
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def _cuda_files(root: Path) -> tuple[Path, ...]:
    return tuple(sorted(path for ending in ("*.cu", "*.cuh") for path in root.rglob(ending)))


def _running(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under ``if TYPE_CHECKING``."""
    todo = [tree]
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, ast.If) and (_dotted(node.test) or "").endswith("TYPE_CHECKING"):
            todo += node.orelse
        else:
            todo += ast.iter_child_nodes(node)


def _dotted(node: ast.AST) -> str | None:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def _called(node: ast.Call) -> str:
    return (_dotted(node.func) or "").rpartition(".")[2]


@functools.cache
def _forwarded(path: Path) -> Mapping[str, str]:
    """Name -> module below the package, as its ``__init__.py`` hands them to ``lazy.exports``."""
    tree = _parsed(path)
    literals: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            literals[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            literals[node.target.id] = node.value
    found: dict[str, str] = {}
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and _called(call) == "exports" and len(call.args) > 1:
            homes = call.args[1]
            homes = literals.get(homes.id, homes) if isinstance(homes, ast.Name) else homes
            found |= ast.literal_eval(homes)
    return found


def _with_headers(path: Path, root: Path, files: set[Path]) -> None:
    """Add ``path`` and what it includes to ``files``, found as ``device.kernels`` finds them."""
    if path in files:
        return
    files.add(path)
    for name in _INCLUDE.findall(path.read_text(encoding="utf-8")):
        header = next(
            (each for each in ((path.parent / name).resolve(), root / name) if each.is_file()), None
        )
        if header is not None:
            _with_headers(header, root, files)


# ---- the source of a suite -------------------------------------------------------------------------------------------


@functools.cache
def package_tree() -> Tree:
    """This package, and the widgets where they are installed: a suite times them."""
    roots = [("gnnsample_lab", PACKAGE_ROOT)]
    spec = importlib.util.find_spec("gnnsample_widgets")
    if spec is not None and spec.origin is not None:
        roots.append(("gnnsample_widgets", Path(spec.origin).resolve().parent))
    return Tree(tuple(roots))


def _layer(path: Path, root: Path) -> str:
    """The folder of the data flow that a file is in; of suites, the room; of what lies beside the folders, "root"."""
    folders = path.relative_to(root).parent.parts
    return "/".join(folders) if folders[:1] == ("bench",) else folders[0] if folders else "root"


def described(files: Iterable[Path], tree: Tree) -> dict[str, Any]:
    """``hash`` of source files and, by folder of the data flow, ``layers``, whose hashes it is made of."""
    layers: dict[str, list[str]] = {}
    for path in files:
        package, root = next((name, root) for name, root in tree.roots if path.is_relative_to(root))
        layer = _layer(path, root) if package == "gnnsample_lab" else package
        layers.setdefault(layer, []).append(f"{path.relative_to(root).as_posix()} {_digest(path)}")
    short = {name: _short(sorted(lines)) for name, lines in sorted(layers.items())}
    return {"hash": total(short), "layers": short}


def total(layers: Mapping[str, str]) -> str:
    """The hash over the hashes of layers."""
    return _short([f"{name} {digest}" for name, digest in sorted(layers.items())])


def _short(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:_DIGITS]


@functools.cache
def of_function(path: str) -> dict[str, Any]:
    """``hash`` and ``layers`` of the source that a suite's function reaches, as this tree has it.

    Args:
        path: of the function below ``bench``, as suites are declared: ``"suites.host.cpu"``.
    """
    return described(files_of(path), package_tree())


def files_of(path: str) -> frozenset[Path]:
    """Files that a suite's function reaches, as :func:`of_function` takes it."""
    return package_tree().closure(f"gnnsample_lab.bench.{path.rpartition('.')[0]}")
