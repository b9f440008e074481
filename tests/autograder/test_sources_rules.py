"""Each rule of a lab has a case that breaks it, and honest ways of writing a test that must pass."""

from __future__ import annotations

import textwrap

import pytest

from autograder.sources.cells import SourceError, parse_source
from autograder.sources.rules import broken_rules, check_source, touched_names

SHARED = """\
# %% shared="imports"
import torch
import torch.distributed as dist
from utils import check, launch
def fill(rank, n):
    return torch.arange(n) + 10 * rank
def differs(a, b):
    return bool((a != b).any())
def runs(probe, *args):
    return [launch(probe, *args, ranks=n) for n in (1, 2, 4)]
EXPECTED_SUM = 6
"""
SOLUTION = """\
# %% solution="ring"
def ring(x):
    ### BEGIN SOLUTION
    dist.all_reduce(x)
    return x
    ### END SOLUTION
# %% solution="tree"
def tree(x):
    ### BEGIN SOLUTION
    return ring(x)
    ### END SOLUTION
# %%
sizes_seen = [1, 2]
"""


def problems_of(test: str, shared: str = SHARED, solution: str = SOLUTION, points: int = 20) -> list[str]:
    """What the build says of a lab with this test cell, without file, line and cell."""
    text = f'{shared}{solution}# %% test="ring_sum" points={points}\n{textwrap.dedent(test).strip()}\n'
    return list(broken_rules(parse_source(text, "lab77_ring.py")))


HONEST = {
    "lambda": "assert launch(lambda: ring(fill(dist.get_rank(), 3)), ranks=2).values[0] is not None",
    "def": """
        def probe(sizes):
            out = []
            for numel in sizes:
                x = fill(dist.get_rank(), numel)
                out.append({"y": ring(x), "x_after": x})
            return out
        for ranks in (1, 2):
            run = launch(probe, [0, 1, ranks + 1], ranks=ranks)
            for r in range(ranks):
                assert (run.values[r][0]["y"] == fill(r, 0)).all(), f"rank {r} of {ranks}: {run.values[r]}"
        """,
    "helper that only probes call": """
        def twice(x):
            return ring(ring(x))
        def probe():
            return twice(fill(dist.get_rank(), 3))
        assert launch(probe, ranks=2).values
        """,
    "probe inside a function of the verdict": """
        def measured(n):
            def again(x):
                return ring(x)
            def probe():
                return again(fill(dist.get_rank(), n))
            return launch(probe, ranks=2).values
        assert len(measured(3)) == 2
        """,
    "probe by keyword": "assert launch(fn=lambda: ring(fill(0, 1)), ranks=None).value == 0",
    "assigned lambda": "probe = lambda: ring(fill(0, 1))\nassert launch(probe, ranks=None).value == 0",
    "launcher of a shared cell": """
        def probe(n):
            return ring(fill(dist.get_rank(), n))
        assert all(run.values for run in runs(probe, 3))
        """,
    "launcher of the cell itself": """
        def values(probe):
            return launch(probe, ranks=2).values
        assert values(lambda: ring(fill(0, 2)))
        """,
    "loop over probes": """
        def probe_ring():
            return ring(fill(0, 2))
        def probe_tree():
            return tree(fill(0, 2))
        for name, probe in (("ring", probe_ring), ("tree", probe_tree)):
            assert launch(probe, ranks=2).values, name
        """,
    "steering by rank, size and index": """
        def probe(root, n):
            rank, world = dist.get_rank(), dist.get_world_size()
            x = fill(rank, n)
            for step in range(world - 1):
                if step == rank or (rank + 1) % world == root:
                    ring(x)
            if rank == root and n > 0 and x.numel() < 5 and len(x) != 7:
                x = None if x is None else x
            return [ring(x) for other in range(world) if other != root]
        assert launch(probe, 1, 3, ranks=2).values
        """,
    "a root that the student's code gets, too": """
        def probe(root):
            ring(root)
            return 1 if dist.get_rank() == root else 0
        assert launch(probe, 1, ranks=2).values
        """,
    "an oracle on ranks": """
        def oracle(n):
            x = fill(dist.get_rank(), n)
            dist.all_reduce(x)
            return x
        want = check.reference(oracle, 3, ranks=2)
        got = launch(lambda n: ring(fill(dist.get_rank(), n)), 3, ranks=2)
        assert torch.equal(got.values[0], want.values[0])
        """,
    "a caught error": """
        def probe():
            try:
                return ring(None)
            except ValueError as error:
                return str(error)
        assert "None" in launch(probe, ranks=None).value
        """,
    "names of a comprehension": """
        both = [launch(lambda n=n: ring(fill(0, n)), ranks=None) for n in (1, 2)]
        assert [run.value.numel() for run in both] == [1, 2]
        """,
    "f-string of the verdict": """
        run = launch(lambda: ring(fill(0, 2)), ranks=None)
        assert run.value is not None, f"got {run.value} of {EXPECTED_SUM}"
        """,
}


@pytest.mark.parametrize("case", HONEST)
def test_honest_tests_pass(case: str) -> None:
    assert problems_of(HONEST[case]) == []


OUTSIDE = {
    "called": ("assert ring(torch.ones(2)) is not None", "uses the student's `ring` outside a probe"),
    "aliased": (
        "f = ring\nassert launch(lambda: f(fill(0, 2)), ranks=2)",
        "uses the student's `ring` outside",
    ),
    "default argument": (
        "def probe(f=ring):\n    return f(fill(0, 2))\nassert launch(probe, ranks=2)",
        "uses the student's `ring` outside",
    ),
    "default of a lambda": (
        "assert launch(lambda f=ring: f(1), ranks=2)",
        "uses the student's `ring` outside",
    ),
    "decorator": (
        "@ring\ndef probe():\n    return 1\nassert launch(probe, ranks=2)",
        "uses the student's `ring` outside",
    ),
    "annotation": (
        "def probe(x: ring):\n    return tree(x)\nassert launch(probe, 1, ranks=2)",
        "uses the student's `ring` outside",
    ),
    "f-string": (
        "run = launch(lambda: ring(1), ranks=2)\nassert run.values, f'{ring.__name__} is empty'",
        "uses the student's `ring` outside",
    ),
    "comprehension": (
        "assert [ring(x) for x in fill(0, 2)] and launch(lambda: ring(1), ranks=2)",
        "uses the student's `ring` outside",
    ),
    "name of a comprehension afterwards": (
        "assert [ring for ring in (1, 2)] and ring and launch(lambda: tree(1), ranks=2)",
        "uses the student's `ring` outside",
    ),
    "helper of the verdict": (
        "def helper(x):\n    return ring(x)\nassert helper(1) and launch(lambda: tree(1), ranks=2)",
        "uses the student's `ring` outside",
    ),
    "helper of both": (
        "def helper(x):\n    return ring(x)\nassert helper(1) == launch(lambda: helper(1), ranks=None).value",
        "uses the student's `ring` in a function that is called outside launch",
    ),
    "method": (
        "class Runner:\n    def go(self):\n        return ring(1)\n"
        "assert Runner().go() and launch(lambda: tree(1), ranks=2)",
        "uses the student's `ring` outside",
    ),
    "probe called by the verdict": (
        "def probe():\n    return ring(1)\nassert probe() == launch(probe, ranks=None).value",
        "uses the student's `ring` in a function that is called outside launch",
    ),
    "argument of launch": (
        "assert launch(lambda f: f(1), ring, ranks=2)",
        "uses the student's `ring` outside a probe",
    ),
    "given to launch itself": ("assert launch(ring, torch.ones(2), ranks=2)", "gives launch `ring` itself"),
    "partial": (
        "import functools\nassert launch(functools.partial(ring, 1), ranks=2)",
        "gives launch `functools.partial(ring, 1)`",
    ),
    "starred": ("calls = [lambda: ring(1)]\nassert launch(*calls, ranks=2)", "gives launch `*calls`"),
    "oracle on ranks": (
        "want = check.reference(ring, 1, ranks=2)\nassert launch(lambda: ring(1), ranks=2) and want",
        "uses the student's `ring` outside a probe",
    ),
    "launch renamed": (
        "go = launch\nassert go(lambda: ring(1), ranks=2)",
        "gives `launch` another name",
    ),
    "loop variable called": (
        "def a():\n    return ring(1)\nfor probe in (a,):\n    assert probe() and launch(probe, ranks=None)",
        "uses `probe`, a probe, other than as what launch runs",
    ),
    "plain cell": (
        "assert launch(lambda: ring(1), ranks=2).values == sizes_seen",
        "uses `sizes_seen`, which only a plain cell defines",
    ),
    "another test's name": (
        "assert launch(lambda: ring(1), ranks=2).values == leftover",
        "uses `leftover`, which neither this cell nor a shared cell defines",
    ),
    "unknown name in a probe": (
        "assert launch(lambda: ring(undefined_input), ranks=2)",
        "uses `undefined_input` in a probe, and no cell defines it",
    ),
    "redefined": (
        "def ring(x):\n    return x\nassert launch(lambda: tree(1), ranks=2)",
        "defines `ring`, which a solution cell defines",
    ),
    "shared name redefined": (
        "fill = None\nassert launch(lambda: ring(1), ranks=2)",
        "defines `fill`, which a shared cell defines",
    ),
    "used before it is bound": (
        "sizes_seen = [launch(lambda: ring(1), ranks=2), sizes_seen]\nassert sizes_seen",
        "uses `sizes_seen`, which only a plain cell defines",
    ),
    "eval": ("assert eval('ring')(1) and launch(lambda: ring(1), ranks=2)", "uses `eval`"),
    "globals": ("assert launch(lambda: ring(1), ranks=2) and globals()['ring']", "uses `globals`"),
    "main module": ("import __main__\nassert launch(lambda: ring(1), ranks=2)", "imports `__main__`"),
    "sys.modules": (
        "import sys\nassert launch(lambda: ring(1), ranks=2) and sys.modules['__main__']",
        "uses `.modules`",
    ),
    "star import": ("from math import *\nassert launch(lambda: ring(1), ranks=2)", "imports * from `math`"),
    "no probe": ("assert torch.ones(1) == 1", "tests nothing of the student's"),
    "probe of nobody": ("assert launch(lambda: fill(0, 1), ranks=2)", "tests nothing of the student's"),
}


@pytest.mark.parametrize("case", OUTSIDE)
def test_verdicts_that_touch_the_student_are_refused(case: str) -> None:
    test, says = OUTSIDE[case]
    found = problems_of(test)
    assert any(says in problem for problem in found), found
    assert all('test cell "ring_sum"' in problem for problem in found)


COMPARES = {
    "==": ("return ring(x) == 6", "compares in a probe (`ring(x) == 6`)"),
    "a result that was kept": ("y = ring(x)\n    return y == x", "compares in a probe (`y == x`)"),
    "by way of a list": ("out = [ring(x)]\n    return [y > 3 for y in out]", "compares in a probe (`y > 3`)"),
    "in a loop": (
        "for y in ring(x):\n        if y < 0:\n            return 1",
        "compares in a probe (`y < 0`)",
    ),
    "in": ("return 6 in ring(x)", "compares in a probe (`6 in ring(x)`)"),
    "f-string": ("y = ring(x)\n    return f'{y == 6}'", "compares in a probe (`y == 6`)"),
    "in place": ("ring(x)\n    return (x[0] == 6)", "compares in a probe (`x[0] == 6`)"),
    "in place, bare": ("ring(x)\n    return x == want", "compares in a probe (`x == want`)"),
    "walrus": ("return (y := ring(x)) is not None and y == 6", "compares in a probe (`y == 6`)"),
    "assert": ("assert ring(x)", "asserts in a probe"),
    "torch.equal": ("return torch.equal(ring(x), x)", "uses `torch.equal` in a probe"),
    "allclose": ("return ring(x).allclose(x)", "uses `ring(x).allclose` in a probe"),
    "eq": ("return ring(x).eq(x)", "uses `ring(x).eq` in a probe"),
    "all": ("return ring(x).all()", "uses `ring(x).all` in a probe"),
    "testing": ("torch.testing.assert_close(ring(x), x)", "uses `torch.testing` in a probe"),
    "check": ("check.equal(ring(x), x)", "uses `check` in a probe"),
    "isinstance": ("return isinstance(ring(x), torch.Tensor)", "uses `isinstance` in a probe"),
    "aliased": ("same = torch.equal\n    return same(ring(x), x)", "uses `torch.equal` in a probe"),
    "getattr": ("return getattr(torch, 'equal')(ring(x), x)", "which may compare"),
    "match": ("match ring(x):\n        case 6:\n            return True", "matches in a probe"),
    "shared comparer": ("return differs(ring(x), x)", "gives a result to `differs`, which compares"),
    "nested function": (
        "def same(a, b):\n        return a == b\n    return same(ring(x), x)",
        "compares in a probe (`a == b`)",
    ),
    "nested lambda": ("same = lambda a: a == 6\n    return same(ring(x))", "compares in a probe (`a == 6`)"),
}


@pytest.mark.parametrize("case", COMPARES)
def test_probes_that_compare_are_refused(case: str) -> None:
    body, says = COMPARES[case]
    found = problems_of(
        f"def probe(x, want):\n    {body}\nassert launch(probe, fill(0, 3), 6, ranks=2).values"
    )
    assert any(says in problem for problem in found), found
    assert all('test cell "ring_sum"' in problem for problem in found)


def test_imported_comparisons_are_refused_under_any_name() -> None:
    found = problems_of("from torch import equal as same\nassert launch(lambda: same(ring(1), 1), ranks=2)")
    assert "uses `same` in a probe" in found[0]


def test_helpers_of_probes_compare_nothing_either() -> None:
    found = problems_of("def good(y):\n    return y == 6\nassert launch(lambda: good(ring(1)), ranks=2)")
    assert "compares in a probe (`y == 6`)" in found[0]


def test_expected_values_stay_out_of_probes() -> None:
    test = "expected = EXPECTED_SUM\nassert launch(lambda: ring(1) - expected, ranks=None).value == 0"
    assert "takes `expected` into a probe" in problems_of(test)[0]


GOOD_TEST = "assert launch(lambda: ring(fill(0, 1)), ranks=2).values"


def test_message_names_file_line_cell_and_name() -> None:
    (problem,) = problems_of(f"{GOOD_TEST}\nassert ring")
    line = (SHARED + SOLUTION).count("\n") + 3
    assert problem.startswith(f'lab77_ring.py, line {line}: test cell "ring_sum" uses the student\'s `ring`')


def test_hidden_names_may_not_be_needed_by_the_visible_part() -> None:
    test = f"### BEGIN HIDDEN TESTS\nn = 3\n### END HIDDEN TESTS\n{GOOD_TEST}\nassert n"
    assert any("uses `n`, which neither this cell" in problem for problem in problems_of(test))


def test_a_test_may_be_hidden_in_part_or_not_at_all() -> None:
    assert problems_of(GOOD_TEST) == []
    assert problems_of(f"{GOOD_TEST}\n### BEGIN HIDDEN TESTS\n{GOOD_TEST}\n### END HIDDEN TESTS") == []


@pytest.mark.parametrize(
    ("shared", "says"),
    [
        ("x = ring(1)\n", "uses the student's `ring`; shared cells also run where no student's code is"),
        ("def later():\n    return [ring(x) for x in (1, 2)]\n", "uses the student's `ring`"),
        ("x = sizes_seen\n", "uses the student's `sizes_seen`"),
        ("x = nobody\n", "uses `nobody`, which no shared cell defines"),
        ("def ring(x):\n    return x\n", "defines `ring`, which a solution cell defines too"),
        ("from math import *\n", "imports * from `math`"),
        ("x = globals()\n", "uses `globals`"),
    ],
)
def test_shared_cells_know_no_student(shared: str, says: str) -> None:
    found = problems_of(GOOD_TEST, shared=SHARED + shared)
    assert any("shared cell" in problem and says in problem for problem in found), found


@pytest.mark.parametrize(
    ("solution", "says"),
    [
        ("def ring(x):\n    return x", "has no ### BEGIN SOLUTION"),
        ("def ring(x):\n    ### BEGIN SOLUTION\n    return x", "has regions that do not pair"),
        (
            "### BEGIN SOLUTION\ndef ring(x):\n    return sizes_seen\n### END SOLUTION",
            "which only a plain cell",
        ),
        ("### BEGIN SOLUTION\ndef ring(x):\n    return nobody\n### END SOLUTION", "which no cell defines"),
        ("def ring(x):\n### BEGIN SOLUTION\n  return x\n### END SOLUTION", "is not Python in the release"),
        (
            "def ring(x)\n    ### BEGIN SOLUTION\n    return x\n    ### END SOLUTION",
            "is not Python: expected ':'",
        ),
    ],
)
def test_solution_cells(solution: str, says: str) -> None:
    text = f'# %% solution="ring"\n{solution}\n# %%\nsizes_seen = 1\n'
    found = problems_of(GOOD_TEST, solution=text)
    assert any('solution cell "ring"' in problem and says in problem for problem in found), found


@pytest.mark.parametrize(
    ("plain", "says"),
    [
        ("fill = 3", "defines `fill`, which a shared cell defines"),
        ("for ring in (1, 2):\n    pass", "defines `ring`, which a solution cell defines"),
        ("### BEGIN SOLUTION\nx = 1\n### END SOLUTION", "which only a solution cell may have"),
        ("### BEGIN HIDDEN TESTS\nx = 1\n### END HIDDEN TESTS", "which only a test cell may have"),
        ("x = = 1", "is not Python"),
    ],
)
def test_plain_cells(plain: str, says: str) -> None:
    found = problems_of(GOOD_TEST, solution=f"{SOLUTION}# %%\n{plain}\n")
    assert any("plain cell at line" in problem and says in problem for problem in found), found


def test_plain_cells_may_use_magics_and_import_again() -> None:
    plain = "# %%\n# %matplotlib inline\nimport torch\n# %%\n# %%ranks 2\n# print(1)\n"
    assert problems_of(GOOD_TEST, solution=SOLUTION + plain) == []


def test_names_are_given_once() -> None:
    twice = SOLUTION + '# %% solution="ring_sum"\n### BEGIN SOLUTION\nx = 1\n### END SOLUTION\n'
    found = problems_of(GOOD_TEST, solution=twice)
    assert [problem for problem in found if "has a name that another cell has too" in problem]


@pytest.mark.parametrize("points", [19, 21])
def test_a_lab_has_20_points(points: int) -> None:
    assert (
        f"its tests have {points} points together, and a lab has 20"
        in problems_of(GOOD_TEST, points=points)[0]
    )


def test_check_source_raises_all_at_once() -> None:
    text = f'{SHARED}{SOLUTION}# %% test="a" points=3\nassert ring\n# %% test="b" points=4\nassert tree\n'
    with pytest.raises(SourceError) as error:
        check_source(parse_source(text, "lab77_ring.py"))
    assert [part in str(error.value) for part in ("`ring`", "`tree`", "7 points")] == [True] * 3


def test_touched_names_follow_solutions() -> None:
    text = f'{SHARED}{SOLUTION}# %% test="a" points=20\nassert launch(lambda: tree(fill(0, 1)), ranks=2)\n'
    assert touched_names(parse_source(text)) == {"a": {"tree", "ring"}}


def test_an_edit_has_no_place_in_a_lab() -> None:
    test = '# %% test="ring_sum" points=20\nassert launch(lambda: ring(fill(0, 1)), ranks=None).value == 0\n'
    text = f'{SHARED}{SOLUTION}# %% edit="ring"\n# replace\n    return x\n# by\n{test}'
    problem = next(broken_rules(parse_source(text, "lab77_ring.py")))
    assert 'edit cell "ring" belongs into a file of answers' in problem
