"""Sampling functions mean what Python means by them: names, kinds of numbers, arithmetic, order of evaluation.

Every program here is run compiled for the CPU, compiled for the GPU where there is one, and by Python itself on
recording objects; all give what the test says.
"""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import re
import textwrap

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.sampling.engine.cpu import context as cpu_context
from gnnsample_lab.sampling.engine.cpu import stream as cpu_stream
from gnnsample_lab.sampling.engine.language import accessors, link
from gnnsample_lab.sampling.engine.language import arithmetic as plain_arithmetic
from gnnsample_lab.sampling.engine.language.compile import compile_operator
from gnnsample_lab.sampling.explain import record
from tests.sampling.engine.recorded_run import Run
from tests.sampling.engine.toy_apps import toy_graph

HEAD = """import gnnsample_lab as lab
import numpy as np
{helpers}

class App(lab.SamplingApp):
    a = np.array([10, 20, 30])
    b = np.array([1, 2, 3])
    floats = np.array([0.25, 0.5, 2.0, 7.5])
    bools = np.array([False, True, True])
    flag = True
    big = 2**62

    def __init__(self, **given):
        vars(self).update(given)

    def steps(self):
        return 1

    def sample_size(self, step):
        return 1

    def next(self, s, transits, src_edges, step, rng):
"""


@pytest.fixture
def app_of(tmp_path):
    def make(body, helpers="", **given):
        head = HEAD.format(helpers=textwrap.dedent(helpers))
        # A folder each: Python takes a program of the same second and size for the one that it compiled before.
        path = tmp_path / str(len(list(tmp_path.iterdir()))) / "my_program.py"
        path.parent.mkdir()
        path.write_text(head + textwrap.indent(textwrap.dedent(body).strip(), " " * 8) + "\n")
        spec = importlib.util.spec_from_file_location("my_program", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        app = module.App(**given)
        app.first_line = head.count("\n") + 1
        return app

    return make


def outcome(app, device, roots, graph=None):
    """What is sampled, or the line and the reason of the error."""
    graph = toy_graph() if graph is None else graph
    try:
        if device == "python":
            run = Run(graph, app, np.asarray(roots).reshape(len(roots), -1))
            if run.fault is not None:
                raise run.error()
            return [int(v) for v in run.steps[0][:, 0]]
        result = lab.run_app(graph, app, roots, device=device)
        return np.asarray(result.to_cpu().steps[0])[:, 0].tolist()
    except lab.SamplingAppError as error:
        reason, place = str(error).split("\n")[:2]
        return int(place.rsplit(" ", 1)[1]) - app.first_line + 1, reason.split(": ", 1)[1]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def ran(request):
    """Where a program runs: compiled for the CPU and by Python itself, or compiled for the GPU."""
    return ("cpu", "python") if request.param == "cpu" else ("cuda",)


@pytest.fixture
def agrees(ran):
    """Compares what is sampled, wherever a program runs, with what a test expects."""

    def check(app, expected, roots=(5,), graph=None):
        for device in ran:
            assert outcome(app, device, list(roots), graph) == expected, device

    return check


def refused(app, line, match):
    with pytest.raises(lab.SamplingAppError, match=match) as caught:
        compile_operator(app)
    assert f'"my_program.py", line {app.first_line + line - 1}' in str(caught.value)


# ---- names and control flow -------------------------------------------------------------------------------


def test_lists_that_branches_choose(agrees, app_of):
    """The list of one branch used to be taken whichever branch ran."""
    body = """
    v = transits[0]
    u = v.edges()[0]
    if v > 2:
        e = v.edges()
    else:
        e = u.edges()
    return e[len(e) - 1]
    """
    graph = toy_graph()
    lists = [graph.indices[graph.indptr[v] : graph.indptr[v + 1]] for v in range(40)]
    roots = [v for v in range(10) if len(lists[v]) and len(lists[lists[v][0]])]
    assert min(roots) <= 2 < max(roots)
    expected = [int(lists[v][-1] if v > 2 else lists[lists[v][0]][-1]) for v in roots]
    agrees(app_of(body), expected, roots)


def test_src_edges_and_another_list_under_one_name_are_refused(app_of):
    """A loop used to read src_edges in every round."""
    body = "e = src_edges\nv = 0\nfor i in range(3):\n    v = e[0]\n    e = v.edges()\nreturn v"
    refused(app_of(body), 4, "e is (src_edges on one path and a list of edges|a list of edges .* src_edges)")


def test_two_tables_under_one_name_are_refused(agrees, app_of):
    """The second one used to be read on both paths."""
    body = "if step > 0:\n    w = self.a\nelse:\n    w = self.b\nreturn w[0]"
    refused(app_of(body), 5, r"w is self.a on one path and self.b on another")
    agrees(app_of("if step > 0:\n    w = self.a\n    return w[0]\nelse:\n    w = self.b\nreturn w[0]"), [1])
    agrees(app_of("if not self.flag:\n    w = self.a\nelse:\n    w = self.b\nreturn w[2]"), [3])


def test_a_local_name_is_local_everywhere(agrees, app_of):
    """A local that shadows a global used to be the global's constant where it is read first."""
    body = "if step > 0:\n    LIMIT = 4\nreturn LIMIT"
    refused(app_of(body, "LIMIT = 3"), 3, "LIMIT may be read before it is assigned")
    refused(app_of("x = LIMIT\nLIMIT = 4\nreturn x", "LIMIT = 3"), 1, "LIMIT may be read before")
    agrees(app_of("x = LIMIT\nreturn x", "LIMIT = 3"), [3])


@pytest.mark.parametrize(
    ("body", "line", "match"),
    [
        ("for i in range(step):\n    x = 1\nreturn x", 3, "x may be read before it is assigned"),
        ("for i in range(3):\n    pass\nreturn i", 3, "i may be read before it is assigned"),
        ("while step > 0:\n    x = 1\n    break\nreturn x", 4, "x may be read before it is assigned"),
        ("x = 1\nfor i in range(3):\n    y = x + 1\n    x = 1.5\nreturn 0", 3, "x is .* write 1.0"),
        ("x = 1\nif step:\n    x = True\nreturn x", 4, "x is .* truth value"),
        ("x = 1\nif step:\n    x = s\nreturn x", 4, "x is .*the sample"),
        ("e = src_edges\nif step:\n    e = transits\nreturn e[0]", 4, "e is (the list|src_edges)"),
        ("f = one\nif step:\n    f = two\nreturn f()", 4, "f is (one|two) on one path and (one|two) on another"),
        ("return nothing(step) + 1", 1, "None is used as a number"),
        ("x = nothing(step)\nreturn 0", 1, "gives no value"),
        ("return other(step)", 1, "other returns"),
        ("return decorated()", 1, "decorators are not compiled"),
        ("return src_edges[0] / 2", 1, "must return a vertex; this is a float"),
        ("return step > 3", 1, "must return a vertex; this is a truth value"),
        ("x = 2.0 ** 3\nreturn 0", 1, r"\*\* takes whole numbers"),
        ("x = 2 ** step\nreturn 0", 1, "exponent"),
        ("x = 7.5 // 2\nreturn 0", 1, "// takes whole numbers"),
        ("x = 7.5 % 2\nreturn 0", 1, "% takes whole numbers"),
        ("x = 1 << 64\nreturn 0", 1, "shift by a count outside"),
        ("x = 2**62 * 4\nreturn 0", 1, "does not fit 64 bits"),
        ("x = min(1, 2.5)\nreturn 0", 1, "one kind"),
        ("x = 1 if step else 2.5\nreturn 0", 1, "convert one"),
        ("x = 2 and 2.5\nreturn 0", 1, "convert one"),
        ("return rng.below(2.0)", 1, "must be a whole number"),
        ("return src_edges[1.0]", 1, "an index must be a whole number"),
        ("return self.a.search(1.5)", 1, "must be a whole number"),
        ("return 1 if 3 in transits else 0", 1, "in cannot be used"),
        ("for i in range(1, 5, 0):\n    pass\nreturn 0", 1, "range.* by steps of 0"),
        ("raise step", 1, "no exception"),
        ("raise", 1, "raise takes an exception"),
    ],
)  # fmt: skip
def test_what_is_refused(app_of, body, line, match):
    helpers = """
    def one(): return 1
    def two(): return 2
    def nothing(x):
        if x > 0:
            return 1
    def other(x):
        if x:
            return 1
        return 2.0
    def twice(f): return f
    @twice
    def decorated(): return 1
    """
    if "other" in body or "decorated" in body:
        with pytest.raises(lab.SamplingAppError, match=match):
            compile_operator(app_of(body, helpers))
    else:
        refused(app_of(body, helpers), line, match)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x = 1\ny = x + 1\nx = 2.5\nreturn y + int(x * 2)", 7),
        ("x = 1\nfor i in range(3):\n    x = 2.5\n    x = int(x) + i\nreturn x", 4),
        ("v = transits[0]\nn = 0\nfor u in v.edges():\n    v = 0\n    n += 1\nreturn n - transits[0].degree()", 0),
        ("e = v = transits[0]\nreturn e - v", 0),
        ("e, x = transits[0].edges(), 2\ne = src_edges if False else e\nreturn len(e) - len(src_edges) + x", 2),
        ("int = 3\nctx = 4\nlab_edge = 5\nreturn int + ctx + lab_edge", 12),
        ("rng = 3\nreturn rng", 3),
        ("step = 5 if step == 0 else 6\nreturn step", 5),
        ("x: int\nx = 4\nreturn x", 4),
        ("while True:\n    x = 3\n    break\nreturn x", 3),
        ("for i in range(5):\n    if i == 2:\n        break\nreturn i", None),
        ("n = 0\nfor i in range(2, -7, -3):\n    n = n * 10 + abs(i)\nreturn n % 40", 214 % 40),
        ("n = 0\nfor i in range(4):\n    i = 9\n    n += i\nreturn n", 36),
        ("x = 0\nif True:\n    pass\nelse:\n    x = undefined_name\nreturn x", 0),
        ("e = first_of(transits[0], s)\nreturn len(e) - transits[0].degree()", 0),
        ("return pick(self.a, 1) - pick(self.b, 2) - 10", 7),
        ("return half(7) + half(True)", 5),
        ("shout(step)\nreturn 3", 3),
        ("f = self.a\nreturn f[0]", 10),
        ("return None if step == 0 else 3", -1),
        ("return transits[0] if src_edges else 1", None),
    ],
)  # fmt: skip
def test_names_follow_control_flow(agrees, app_of, body, expected):
    helpers = """
    def first_of(v, s):
        return v.edges()
    def pick(table, i):
        return table[i]
    def half(x):
        y = x / 2
        return int(y + 0.5)
    def shout(x):
        if x > 0:
            raise ValueError('too loud')
    """
    app = app_of(body, helpers)
    if expected is None:
        with pytest.raises(lab.SamplingAppError):
            compile_operator(app)
    else:
        agrees(app, [expected])


def test_a_list_is_walked_once_evaluated(agrees, app_of):
    """The vertex of a list was evaluated anew in every round, draws and all."""
    body = """
    n = 0
    v = transits[0]
    for u in src_edges[rng.below(len(src_edges))].edges():
        n += 1
    return n
    """
    graph, app = toy_graph(), app_of(body)
    agrees(app, outcome(app, "python", [1, 2, 3], graph), [1, 2, 3], graph)
    chosen = {int(graph.indptr[u + 1] - graph.indptr[u]) for u in graph.indices}
    assert set(outcome(app, "cpu", [1, 2, 3], graph)) <= chosen


# ---- numbers ----------------------------------------------------------------------------------------------

SMALLEST = -(2**63)


NUMBERS = [
    ("x * x > 0", False), ("big + big < 0", True), ("-low == low", True), ("abs(low) == low", True),
    ("low // minus == low", True), ("low % minus == 0", True), ("-7 // two == -4", True),
    ("(minus * 7) % two == 1", True), ("7 // (minus * two) == -4", True), ("7 % (minus * 4) == -1", True),
    ("(x - 3037000500 + 7) / two == 3.5", True), ("(big * two - 1) / 1 == 9223372036854775808.0", True),
    ("(two - 1) << 63 == low", True), ("low >> 63 == -1", True), ("(two << (two * 31)) == low", True),
    ("two ** 63 == low", True), ("two ** 64 == 0", True), ("(minus * 3) ** 3 == -27", True),
    ("True + True == 2", True), ("-True == -1", True), ("~(two > 1) == -2", True),
    ("(two > 1) & (two > 3)", False), ("(two > 1) | (two > 3)", True), ("(two > 1) ^ (two > 3)", True),
    ("int(-2.5 * two) == -5", True), ("int(-1.5 * two + 0.5) == -2", True), ("int(two / 4) == 0", True),
    ("round(two / 4) == 0 and round(1.5 * 1) == 2 and round(two + 0.5) == 2", True),
    ("round(two * -1.25) == -2 and round(two * -1.75) == -4", True),
    ("round(two + 0.75) == 3 and round(minus * 0.75) == -1", True),
    ("min(nan, 1.0) == 1.0", False), ("min(1.0, nan) == 1.0", True), ("max(1.0, nan, 2.0) == 2.0", True),
    ("max(two, True, 1) == 2", True),
    ("big < big * 1.0 + 1", False), ("(big + 1) == big * 1.0", True), ("nan == nan", False), ("nan != nan", True),
    ("not nan", False), ("bool(nan)", True), ("0 < two < 2.5 < 3", True), ("0 < (two > 1) < two", True),
    ("(two and 5) == 5 and (0 and two) == 0 and (0 or two) == 2", True), ("(0.0 or nan) != (0.0 or nan)", True),
    ("float(big + 1) == big", True), ("int(True) + int(False) == 1", True), ("abs(minus * 2.5) == 2.5", True),
    ("1 / abs(two * -0.5) == 1", True), ("8 - 1 & two == 2", True), ("6 ^ 3 == 5", True), ("+two == 2", True),
    ("self.bools[two] and not self.bools[0]", True), ("self.bools[two] + self.bools[1] == 2", True),
    ("self.floats.search(two) == 2", True), ("self.floats.search(0.3) == 0", True),
    ("self.floats.search(7.5) == 3", True), ("self.bools.search(0) == 0", True), ("self.a.search(25) == 1", True),
    ("self.scale == 2.5", True), ("self.count + 1 == 4", True),
    ("self.order[0] == 5 and self.order.search(4) == 2", True),
]  # fmt: skip
NUMBERS_HEAD = """
x = 3037000500 + step
two = 2 + step
minus = step - 1
low = -9223372036854775808 + step
big = 4611686018427387904 + step
infinity = 1e308 * 10 * two
nan = infinity - infinity
number = s.id()
"""


@pytest.fixture
def numbers_app(app_of):
    """All of them in one program, a sample each: compiling takes longer than everything else."""
    body = NUMBERS_HEAD.strip()
    for number, (expression, _) in enumerate(NUMBERS):
        body += f"\nif number == {number}:\n    return 1 if {expression} else 0"
    return app_of(body, scale=np.float64(2.5), count=np.int32(3), order=(5, 3, 4, 9))


def test_numbers(ran, numbers_app):
    for device in ran:
        found = outcome(numbers_app, device, [5] * len(NUMBERS))
        wrong = [case for case, value in zip(NUMBERS, found, strict=True) if value != case[1]]
        assert not wrong, device


@pytest.mark.slow
@pytest.mark.skipif(link.missing() is not None, reason=f"*** PROGRAMS WERE NOT LINKED: {link.missing()} ***")
def test_numbers_link(numbers_app):
    assert link.build(compile_operator(numbers_app), "steps/individual.cu", {"SLOTS": 1})[:4] == b"\x7fELF"


@pytest.mark.parametrize(
    ("body", "line", "reason"),
    [
        ("x = step\nreturn int(3 / x)", 2, "division by zero"),
        ("x = step * 1.0\nreturn int(3 / x)", 2, "division by zero"),
        ("return 3 % step", 1, "division by zero"),
        ("return int(1.0 / min(0.0, step * -1.0))", 1, "division by zero"),
        ("return 3 // (step * 2)", 1, "division by zero"),
        ("return 1 << (step - 1)", 1, "shift by a count outside 0..63"),
        ("x = 64 + step\nreturn 1 >> x", 2, "shift by a count outside 0..63"),
        ("x = 1e19 + step\nreturn int(x)", 2, "int() of a number that does not fit 64 bits"),
        ("x = 9223372036854775808.0 + step\nreturn round(x)", 2, "int() of a number that does not fit 64 bits"),
        ("x = 1e308 * (10 + step)\nreturn int(x - x)", 2, "int() of a number that does not fit 64 bits"),
        ("for i in range(0, 5, step):\n    pass\nreturn 0", 1, "range() by steps of 0"),
        ("low = -9223372036854775808 + step\nfor i in range(low, -low - 1):\n    break\nreturn 0", 2,
         "range() of more than 2**63 - 1 rounds"),
        ("return self.a[3 + step]", 1, "index outside the table"),
        ("return self.a[step - 1]", 1, "index outside the table"),
        ("return self.floats.search(0.125)", 1, "index outside the table"),
        ("return src_edges[step - 1]", 1, "index outside the list of edges"),
        ("s.roots.replace(transits[0], 10**12)\nreturn 0", 1, "vertex outside the graph"),
        ("x = 3 // step + self.a[7]\nreturn x", 1, "division by zero"),
        ("x = self.a[7] + 3 // step\nreturn x", 1, "index outside the table"),
        ("assert step, f'{3 // step} is too much'\nreturn 0", 1, "division by zero"),
        ("if step == 0: raise ValueError('here')\nreturn 0", 1, "ValueError: here"),
        ("n = 0\nwhile n >= 0:\n    n += 1\nreturn 0", 2, "a while loop of more than 1,048,576 rounds"),
        ("v = 10**10\ne = v.edges()\nreturn len(e)", 3, "vertex outside the graph"),
    ],
)  # fmt: skip
def test_errors_have_one_line_and_one_reason(agrees, app_of, body, line, reason, monkeypatch):
    monkeypatch.setattr(
        record, "MAX_ROUNDS", 1000
    )  # of Python, which takes seconds for those of compiled loops
    agrees(app_of(body), (line, reason))


def test_what_is_not_reached_does_not_fail(agrees, app_of):
    agrees(app_of("return 1 if step == 0 else 3 // step"), [1])
    agrees(app_of("return 1 if step == 0 or 3 // step > 1 else 2"), [1])
    agrees(app_of("return 1 if 0 < step < 3 // step else 2"), [2])
    agrees(app_of("x = step and 3 // step\nreturn x"), [0])


def test_chances_outside_the_unit_interval(agrees, app_of):
    body = """
    nan = 1e308 * (10 + step)
    nan = nan - nan
    n = 0
    n += 1 if rng.chance(nan) else 0
    n += 2 if rng.chance(-1e300) else 0
    n += 4 if rng.chance(1e-11 * step) else 0
    n += 8 if rng.chance(1e300 + step) else 0
    n += 16 if rng.chance(1) else 0
    return n
    """
    agrees(app_of(body), [24])


def test_ranges_of_any_numbers(agrees, app_of):
    cases = [
        (SMALLEST, 2**63 - 1, 2**62), (2**63 - 1, SMALLEST, SMALLEST), (0, SMALLEST, SMALLEST), (5, 6, 2**62),
        (2**63 - 1, SMALLEST, -(2**62)), (SMALLEST, SMALLEST + 5, 2), (2**63 - 9, 2**63 - 1, 3), (3, -4, -2), (4, 4, 1),
    ]  # fmt: skip
    body = (
        "n = 0\nfor i in range(self.t[0], self.t[1], self.t[2]):\n    n = n * 7 + (i >> 3) + 1\nreturn n & 31"
    )
    for case in cases:
        n = 0
        for i in range(*case):
            n = n * 7 + (i >> 3) + 1
        agrees(app_of(body, t=np.array(case)), [n & 31])


def test_rounds_of_ranges_are_exact():
    edge = [SMALLEST, SMALLEST + 1, -(2**62), -5, -1, 0, 1, 2, 3, 2**62, 2**63 - 2, 2**63 - 1]
    told = []
    plain_arithmetic.lab_fail, before = (lambda ctx, line, code: told.append(code)), plain_arithmetic.lab_fail
    try:
        for first, end, by in itertools.product(edge, edge, edge):
            if by != 0:
                told.clear()
                rounds = range(first, end, by)
                count = 0 if not rounds else (rounds[-1] - rounds[0]) // by + 1
                with np.errstate(over="ignore"):
                    found = plain_arithmetic.lab_rounds(0, *map(np.int64, (first, end, by)), 1)
                assert (told, found) == (([14], 0) if count >= 2**63 else ([], count)), (first, end, by)
    finally:
        plain_arithmetic.lab_fail = before


def test_unsorted_tables_are_probed_alike(agrees, app_of):
    table = np.random.default_rng(1).integers(0, 30, 23)
    table[0] = 0
    for kind in (np.int32, np.float32):
        app = app_of("return self.t.search(transits[0])", t=table.astype(kind))
        low, expected = 0, []
        for x in range(30):
            low, high = 0, len(table)
            while low < high:
                middle = (low + high) >> 1
                low, high = (middle + 1, high) if table[middle] <= x else (low, middle)
            expected.append(low - 1)
        agrees(app, expected, range(30))


def test_tables_that_do_not_fit_are_refused(app_of):
    body = "return self.t[0]"
    refused(app_of(body, t=np.array([2**63], dtype=np.uint64)), 1, "do not fit 64 bits")
    refused(app_of(body, t=np.zeros(2, dtype=np.longdouble)), 1, "at most 64 bits")
    refused(app_of(body, t=[[1], [2, 3]]), 1, "no array of numbers|one-dimensional")


def test_a_failure_in_another_file_names_that_file(app_of, tmp_path):
    other = tmp_path / "elsewhere.py"
    other.write_text("\n\n\ndef entry(table, i):\n    return table[i]\n")
    helpers = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nfrom elsewhere import entry"
    app = app_of("x = entry(self.a, 1)\nreturn entry(self.a, x)", helpers)
    with pytest.raises(lab.SamplingAppError, match='outside the table\n  File "elsewhere.py", line 5'):
        lab.run_app(toy_graph(), app, [0], device="cpu")


# ---- accessors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accessor", accessors.DECLARATIONS, ids=lambda accessor: accessor.name)
def test_the_cpu_has_every_accessor_with_its_types(accessor):
    from numba import types

    defined = getattr(cpu_context if hasattr(cpu_context, accessor.name) else cpu_stream, accessor.name)
    names = list(inspect.signature(defined.py_func).parameters)
    assert names == ["ctx", *(name for name, _ in accessor.arguments)]
    kinds = {"ctx": types.voidptr, "i8": types.int64, "i4": types.int64, "f8": types.float64}
    result, arguments = accessors.ACCESSORS[accessor.name]
    signature = tuple(kinds[a] for a in arguments)
    defined.compile(signature)
    assert defined.overloads[signature].signature.return_type == kinds[result]


def test_no_accessor_is_defined_without_a_declaration():
    declared = {accessor.name for accessor in accessors.DECLARATIONS}
    for module in (cpu_context, cpu_stream):
        assert {name for name in vars(module) if name.startswith("lab_")} <= declared
    for name in declared:
        assert re.search(rf"__device__ [\w ]*\*? ?{name}\(", accessors.cuda_declarations())
