"""What users may write, and how they are told when something is wrong."""

from __future__ import annotations

import importlib.util
import textwrap

import pytest

import gnnsample_lab as lab
from gnnsample_lab.sampling.engine.language.compile import compile_operator
from tests.sampling.engine.toy_apps import APPS, Hops, SecondOrder, Together, toy_graph

HEAD = """import gnnsample_lab as lab
LIMIT = 3

def outer(s):
    return inner(s, 2)

def inner(s, n):
    return s.prev_count(1) * n

def endless(s):
    return endless(s)

class App(lab.SamplingApp):
    scale = 2
    text = "no number"
    square = [[1, 2], [3, 4]]

    def steps(self):
        return 1

    def sample_size(self, step):
        return 1

    def next(self, s, transits, src_edges, step, rng):
"""
FIRST_LINE = HEAD.count("\n") + 1


@pytest.fixture
def app_of(tmp_path):
    def make(body):
        # A folder each: Python takes a program of the same second and size for the one that it compiled before.
        path = tmp_path / str(len(list(tmp_path.iterdir()))) / "my_sampler.py"
        path.parent.mkdir()
        path.write_text(HEAD + textwrap.indent(textwrap.dedent(body).strip(), " " * 8) + "\n")
        spec = importlib.util.spec_from_file_location("my_sampler", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.App()

    return make


@pytest.mark.parametrize(
    ("body", "line", "match"),
    [
        ("x = 1\nx = [1]\nreturn x", 2, "a list cannot be used"),
        ("with s:\n    return 0", 1, "with cannot be used"),
        ("return undefined", 1, "name 'undefined' is not defined"),
        ("return s.foo()", 1, "the sample has no method 'foo'"),
        ("return s.prev_vertex(1)", 1, r"prev_vertex takes 2 arguments \(got 1\)"),
        ("return self.missing", 1, "self.missing is not set"),
        ("return self.text", 1, "is used as a number|is no number"),
        ("return self.square[0]", 1, "must be a one-dimensional array"),
        ("return src_edges", 1, "src_edges is used as a number"),
        ("return len(rng)", 1, r"the random stream has no len\(\)"),
        ("x = 4\nreturn x // 0", 2, "division by zero"),
        ("return endless(s)", 1, "recursion is not possible"),
        ("src_edges[0] = 3\nreturn 0", 1, "only names can be assigned to"),
        ("return min(key=3)", 1, "given by position"),
        ("rng = 3\nreturn rng.below(2)", 2, "a whole number has no method 'below'"),
        ("return (x := 3)", 1, ":= cannot be used"),
        ("while step < 0:\n    pass\nelse:\n    return 1\nreturn 0", 1, "else after while cannot be used"),
        ("for v in transits:\n    pass\nelse:\n    return 1\nreturn 0", 1, "else after for cannot be used"),
        ("for x, y in transits:\n    pass\nreturn 0", 1, "this kind of for cannot be used"),
    ],
)
def test_what_cannot_be_rewritten_names_the_line(app_of, body, line, match):
    with pytest.raises(lab.SamplingAppError, match=match) as caught:
        compile_operator(app_of(body))
    expected = line - 1 + FIRST_LINE if "endless" not in body else None
    if expected:
        assert f'"my_sampler.py", line {expected}' in str(caught.value)


@pytest.mark.parametrize(
    ("body", "line", "match"),
    [
        ("x = 0\nreturn src_edges[len(src_edges) + x]", 2, "index outside the list of edges"),
        ("e = transits[0].edges()\nreturn e[len(e)]", 2, "index outside the list of edges"),
        ("return transits[1]", 1, "position outside the step"),
        ("return 40 + step", -1, r"next returned neither a vertex \(0 to 39\) nor NULL"),
        ("return 10**9", -1, r"neither a vertex \(0 to 39\) nor NULL"),
        ("return -2", -1, r"neither a vertex \(0 to 39\) nor NULL"),
        ("v = 99\nreturn v.degree()", 2, "vertex outside the graph"),
        ("x = step\nreturn 5 // x", 2, "division by zero"),
        ("x = 1.0 * step\nreturn int(5 / x)", 2, "division by zero"),
        ("x = 4\nx %= step\nreturn x", 2, "division by zero"),
        ("return rng.below(step)", 1, r"rng.below\(\) of a number below 1"),
        ("if step == 0:\n    raise ValueError('no step 0 here')\nreturn 0", 2, "ValueError: no step 0 here"),
        ("assert step > 0, 'too early'\nreturn 0", 1, "AssertionError: too early"),
        ("s.roots.replace(39, 1)\nreturn 0", 1, "a vertex that is no root"),
        ("while True:\n    if rng.chance(0.0):\n        return 0", 1, "more than 1,048,576 rounds"),
    ],
)
def test_what_fails_in_a_sample_names_sample_and_line(app_of, body, line, match):
    with pytest.raises(lab.SamplingAppError, match=rf"sample 7: .*{match}") as caught:
        lab.run_app(toy_graph(False), app_of(body), [0, 2], device="cpu", first_sample=7)
    expected = FIRST_LINE + line - 1 if line > 0 else FIRST_LINE - 1
    assert f'"my_sampler.py", line {expected}' in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_number_of_two_kinds_names_the_line(app_of):
    body = "x = 1.5\nif step > 0:\n    x = 1\nreturn src_edges[x << 2]"
    with pytest.raises(lab.SamplingAppError, match="x is a .* on one path and a .* on another") as caught:
        lab.run_app(toy_graph(), app_of(body), [0], device="cpu")
    assert f'"my_sampler.py", line {FIRST_LINE + 3}' in str(caught.value)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return outer(s) + LIMIT + self.scale", 1 * 2 + 3 + 2),
        ("x, y = 1, 2\nx, y = y, x\nreturn x * 10 + y", 21),
        ("n = 0\nfor i in range(9, 0, -2):\n    if i == 3:\n        continue\n    n += i\nreturn n", 22),
        ("'''Documented.'''\nx: int = 7\nreturn -x + 9 if not x < 7 and x != 0 else 0", 2),
        ("return int(abs(-2.5) * 2) + max(1, 2, 3) - min(4, True)", 7),
        ("n = 3\nwhile n > 0:\n    n -= 1\n    if n == 1:\n        break\nreturn n", 1),
        ("roots = s.roots\nmine = roots[0]\nreturn mine", 5),
        ("n = 0\nfor v in transits:\n    n += v\nfor v in s.roots:\n    n += v\nreturn n", 10),
        ("return 7 % 4 + 2 ** 3 + (6 ^ 3)", 3 + 8 + 5),
    ],
)
def test_what_can_be_written(app_of, body, expected):
    assert lab.run_app(toy_graph(), app_of(body), [5], device="cpu").steps[0].tolist() == [[expected]]


def test_functions_without_source_and_lambdas_are_refused():
    namespace = {"lab": lab}
    exec("class App(lab.SamplingApp):\n    def next(self, s, t, e, step, rng): return 0", namespace)
    with pytest.raises(lab.SamplingAppError, match="write it in a file or a notebook cell"):
        compile_operator(namespace["App"]())

    class App(Hops):
        next = lambda self, s, transits, src_edges, step, rng: 0  # noqa: E731

    with pytest.raises(lab.SamplingAppError, match="only functions that def defines"):
        compile_operator(App())


def test_edges_that_are_only_returned_are_read_by_the_engine():
    assert compile_operator(APPS["walk"]).deferred
    assert compile_operator(Hops()).deferred
    assert not compile_operator(SecondOrder()).deferred
    graph = toy_graph()
    for name in ("walk", "hops"):
        assert "lab_edge(" not in compile_operator(APPS[name], graph).next_source
    assert compile_operator(Together()).deferred and compile_operator(Together()).collective


def test_the_key_covers_constants_but_not_values_of_tables():
    import numpy as np

    class Tabled(Hops):
        def next(self, s, transits, src_edges, step, rng):
            return self.table[self.shift]

    one, other, wider, shifted = Tabled(), Tabled(), Tabled(), Tabled()
    one.table, other.table, wider.table = np.arange(4), np.arange(4) * 2, np.arange(5)
    shifted.table, shifted.shift = np.arange(4), 1
    one.shift = other.shift = wider.shift = 0
    keys = [compile_operator(app).key for app in (one, other, wider, shifted)]
    assert keys[0] == keys[1] and len(set(keys)) == 3
    results = [
        lab.run_app(toy_graph(), app, [3], device="cpu").steps[0][0, 0] for app in (one, other, shifted)
    ]
    assert results == [0, 0, 1]


def loaded(path, text, name):
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CHANGES = {
    "lines above": lambda text: "\n\n\n\n\n" + text,
    "another function in its place": lambda text: (
        text.replace("return rng.below(7)", "return 0")
        .replace("def next", "def other")
        .replace("def second", "def next")
    ),
    "a constant": lambda text: text.replace("below(7)", "below(8)"),
    "an operator": lambda text: text.replace("step - step", "step + step"),
    "a helper": lambda text: text.replace("return n * 2", "return n * 3"),
    "half of it": lambda text: text[: text.index("def next")],
}
EDITED = '''import gnnsample_lab as lab

def twice(n):
    return n * 2

class Plain(lab.SamplingApp):
    LAST = 3

    def next(self, s, transits, src_edges, step, rng):
        return [k for k in (Plain.LAST, 0.0)]

def enclosing(a):
    class App(lab.SamplingApp):
        _mine = 0

        def next(self, s, transits, src_edges, step, rng):
            """Draws."""
            assert step - step == 0, "never"
            return rng.below(7) + twice(a) + self._mine

        def second(self, s, transits, src_edges, step, rng):
            return rng.below(5)

        def steps(self):
            return 1

        def sample_size(self, step):
            return 1

    return App()

app = enclosing(1)
plain = Plain()
'''


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changed_after_it_was_imported_is_refused(change, tmp_path):
    path = tmp_path / "edited.py"
    module = loaded(path, EDITED, "edited")
    before = compile_operator(module.app).key
    text = CHANGES[change](EDITED)
    assert text != EDITED
    with pytest.raises(lab.SamplingAppError, match="cannot be used"):
        compile_operator(module.plain)  # as it is in an unchanged file
    path.write_text(text)
    with pytest.raises(lab.SamplingAppError, match="has changed since it was imported; reload it"):
        compile_operator(module.app)
    path.write_text(EDITED + "\n# a remark at the end\n")
    assert compile_operator(module.app).key == before


def test_comments_and_strings_may_stand_in_the_first_column(tmp_path):
    body = '        """Words.\nMore words.\n"""\n# a remark\n        return transits[1]\n'
    module = loaded(tmp_path / "first_column.py", HEAD + body, "first_column")
    with pytest.raises(lab.SamplingAppError, match="position outside the step") as caught:
        lab.run_app(toy_graph(), module.App(), [5], device="cpu")
    assert f'"first_column.py", line {FIRST_LINE + 4}' in str(caught.value)


def test_an_empty_list_holds_whole_numbers():
    class Listed(Hops):
        def next(self, s, transits, src_edges, step, rng):
            found = 0
            for v in self.more:
                found = v
            return found

    app = Listed()
    app.more = []
    assert (lab.run_app(toy_graph(), app, [3], device="cpu").steps[0] == 0).all()
    app.more = [4]
    assert (lab.run_app(toy_graph(), app, [3], device="cpu").steps[0] == 4).all()


def test_a_call_that_changes_something_is_made_once():
    """Some kernels ask for the position of an edge again; they may only where asking changes nothing."""

    class Moving(Hops):
        def next(self, s, transits, src_edges, step, rng):
            s.roots.replace(s.roots[0], transits[0])
            return src_edges[0]

    assert not compile_operator(Moving()).deferred


class Private(Hops):
    """Names with two underscores belong to the class in whose body they stand."""

    def __init__(self):
        super().__init__()
        self.__kept = 2
        self.__dict__["__kept"] = 5  # another attribute

    def __twice(self, n):
        __double = n
        __double += n
        return __double

    def next(self, s, transits, src_edges, step, rng):
        return self.__twice(self.__kept)


def test_private_names_are_those_of_the_class():
    app = Private()
    assert app._Private__twice(app._Private__kept) == 4
    assert (lab.run_app(toy_graph(), app, [3], device="cpu").steps[0] == 4).all()

    class Heir(Private):
        def next(self, s, transits, src_edges, step, rng):
            return self.__kept

    with pytest.raises(lab.SamplingAppError, match="self._Heir__kept is not set"):
        lab.run_app(toy_graph(), Heir(), [3], device="cpu")
