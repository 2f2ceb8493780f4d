"""Every application's functions are linked into the kernels that call them; needs the compilers, not a GPU."""

from __future__ import annotations

import pytest

from gnnsample_lab.sampling.engine.language import link
from gnnsample_lab.sampling.engine.language.compile import compile_operator
from tests.sampling.apps.small import SMALL
from tests.sampling.apps.statistics import tangled_graph

MISSING = link.missing()


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
@pytest.mark.parametrize("name", SMALL)
def test_functions_become_part_of_the_kernels(name):
    graph, app = tangled_graph(True), SMALL[name]()
    app.prepare(graph)
    operator = compile_operator(app, graph)
    source = "steps/collective.cu" if app.is_collective else "steps/individual.cu"
    cubin = link.build(operator, source, {"ID_T": "int"})
    assert cubin[:4] == b"\x7fELF"
    assert b"lab_next" not in cubin  # inlined
