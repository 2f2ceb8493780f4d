"""Recipes: what is handed over is one program that says the same as what was run, whatever it was given."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import pytest
from gnnsample_widgets.shell.recipe import Each, follow, hand_over

import gnnsample_lab as lab
from tests.widgets.checks import check_code
from tests.widgets.toy import Toy

NAMES = [
    "two\nlines", "carriage\rreturn", "form\x0cfeed", "next\x85line", "line\u2028separator", "paragraph\u2029end",
    "quote'quote", 'double"quote', 3 * "'" + "three", '"""three"""', "back\\slash", "end\\", "{brace}", "{0}",
    "%s", "\x00nul",
    "\u202eright to left", "a\ud800lone surrogate", "'; raise SystemExit #", "\n__import__('os')._exit(3)\n",
    "<b>Zürich</b>",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_graphs_name_cannot_end_the_comment_that_it_stands_in(name: str) -> None:
    """Names come from files. The code must be one program that draws, whatever the graph is called."""
    graph = lab.Graph.from_edges([0, 1, 2, 0], [1, 2, 0, 2], name=name)
    toy = Toy(graph)
    assert toy.error == ""
    (comment,) = [line for line in toy.code.splitlines() if "explorer was given" in line]
    assert comment.startswith("# ") and ast.literal_eval(comment.partition("given: ")[2]) == graph.title
    benign = Toy(lab.Graph.from_edges([0, 1, 2, 0], [1, 2, 0, 2], name="benign"))
    assert ast.dump(ast.parse(toy.code)) == ast.dump(ast.parse(benign.code))
    check_code(toy, graph)


@pytest.mark.parametrize("value", NAMES, ids=ascii)
def test_every_given_value_is_handed_over_as_a_literal(value: str) -> None:
    """Names of files, of choices and of datasets reach the code by the same way."""
    given = {"g": None, "kind": value, "several": [value, value]}
    recipe = {"shown": return_both}
    namespace: dict[str, Any] = {}
    exec(hand_over(recipe, given, [f"g = {value!r}"]), namespace)
    assert (
        namespace["shown"]
        == (value, [value, value])
        == follow(recipe, given, lambda key, make: make())["shown"]
    )


def return_both(kind: str, several: list[str]) -> tuple[str, list[str]]:
    return kind, several


def test_a_class_is_handed_over_by_name_only() -> None:
    evil = type("Evil\nimport os", (), {})
    code = hand_over({"shown": return_class}, {"app": evil}, [])
    assert "import os" not in code and "your own class" in code
    namespace: dict[str, Any] = {}
    exec(hand_over({"shown": return_class}, {"app": Toy}, []), namespace)
    assert namespace["shown"] is Toy


def return_class(app: Any) -> Any:
    return app


def test_steps_that_do_not_depend_on_a_change_are_kept() -> None:
    calls: list[tuple[Any, ...]] = []
    kept: dict[Any, Any] = {}

    def double(host: Any, size: int) -> int:
        calls.append(("double", size))
        return 2 * size

    def power(doubled: int, exponent: int) -> int:
        calls.append(("power", doubled, exponent))
        return int(doubled**exponent)

    def total(powers: dict[int, int], sign: int) -> int:
        calls.append(("total",))
        return sign * sum(powers.values())

    recipe = {"doubled": double, "powers": Each(power, "exponent", of="exponents"), "shown": total}

    def remember(key: Any, make: Callable[[], Any]) -> Any:
        if key not in kept:
            kept[key] = make()
        return kept[key]

    def run(**given: Any) -> tuple[Any, list[Any]]:
        calls.clear()
        made = follow(recipe, {"host": None, **given}, remember)
        return made["shown"], [call for call in calls if call[0] != "total"]

    assert run(size=1, exponents=[1, 2], sign=1) == (6, [("double", 1), ("power", 2, 1), ("power", 2, 2)])
    assert run(size=1, exponents=[1, 2], sign=-1) == (-6, [])
    assert run(size=1, exponents=[2, 3], sign=1) == (12, [("power", 2, 3)])
    assert run(size=2, exponents=[1], sign=1) == (4, [("double", 2), ("power", 4, 1)])
