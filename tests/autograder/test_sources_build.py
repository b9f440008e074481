"""Built notebooks: nbgrader accepts them, their bytes do not change, and files out of step are named."""

from __future__ import annotations

import copy
from pathlib import Path

import nbformat
import pytest
from nbgrader.nbgraderformat import MetadataValidator
from nbgrader.preprocessors import ClearHiddenTests, ClearSolutions, ComputeChecksums

from autograder.sources import SourceError, build_lab, build_notebook, read_source
from autograder.sources.build import (
    find_sources,
    main,
    notebook_text,
    out_of_step,
    refresh_release,
    target_of,
    write_notebook,
)
from autograder.sources.cells import parse_source
from autograder.sources.rules import check_release, student_text

LAB = """\
# %% shared="imports"
from utils import launch

# %% solution="double"
def double(x):
    ### BEGIN SOLUTION
    return 2 * x
    ### END SOLUTION

# %% test="double_small" points=20
run = launch(lambda: double(3), ranks=None)
assert run.value == 6, f"double(3) is 6, not {run.value}"
### BEGIN HIDDEN TESTS
assert launch(lambda: double(-5), ranks=None).value == -10
### END HIDDEN TESTS

# %%
print("see")

# %%
print("see")
"""


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """A repository with one lab and one notebook, nothing built."""
    (tmp_path / "solutions").mkdir()
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "solutions" / "lab77_double.py").write_text(LAB)
    (tmp_path / "notebooks" / "07_double.py").write_text("# %% [markdown]\n# # Doubling\n# %%\nx = 2\n")
    return tmp_path


def lab_source(text: str = LAB):
    return parse_source(text, "lab77_double.py")


def test_cells_carry_what_nbgrader_reads() -> None:
    notebook = build_lab(lab_source())
    by_id = {cell.id: cell for cell in notebook.cells}
    assert by_id["imports"].metadata.nbgrader == {
        "grade": False,
        "grade_id": "imports",
        "locked": True,
        "schema_version": 3,
        "solution": False,
        "task": False,
    }
    assert by_id["double"].metadata.nbgrader["solution"] and not by_id["double"].metadata.nbgrader["locked"]
    assert by_id["double_small"].metadata.nbgrader["points"] == 20
    MetadataValidator().validate_nb(notebook)
    nbformat.validate(notebook)


def test_there_are_no_outputs_and_the_kernel_is_python3() -> None:
    notebook = build_notebook(lab_source())
    assert notebook.metadata.kernelspec.name == "python3"
    for cell in notebook.cells:
        assert cell.outputs == [] and cell.execution_count is None


def test_two_builds_are_the_same_bytes_and_all_ids_differ() -> None:
    first, second = build_notebook(lab_source()), build_notebook(lab_source())
    assert notebook_text(first) == notebook_text(second)
    ids = [cell.id for cell in first.cells]
    assert len(set(ids)) == len(ids)


def test_a_new_cell_does_not_change_the_ids_of_others() -> None:
    more = build_notebook(lab_source("# %% [markdown]\n# hello\n\n" + LAB))
    assert [cell.id for cell in more.cells[1:]] == [cell.id for cell in build_notebook(lab_source()).cells]


def test_stub_and_hidden_parts_are_cut_as_nbgrader_cuts_them() -> None:
    """The oracle: nbgrader's own preprocessors."""
    source = lab_source()
    release = copy.deepcopy(build_lab(source))
    for preprocessor in (ClearSolutions(), ClearHiddenTests()):
        release, _ = preprocessor.preprocess(release, {})
    for cell, released in zip(source.cells, release.cells, strict=True):
        assert released.source == student_text(cell).rstrip()
    check_release(release, source)


def test_a_release_with_an_answer_is_refused() -> None:
    source = lab_source()
    with pytest.raises(SourceError, match="marker of SOLUTION"):
        check_release(build_lab(source), source)


@pytest.mark.parametrize(
    ("left", "cell"), [("return 2 * x", "double"), ("assert launch(lambda: double(-5)", "double_small")]
)
def test_a_release_with_one_secret_line_is_refused(left: str, cell: str) -> None:
    source = lab_source()
    release, _ = ClearSolutions().preprocess(build_lab(source), {})
    release, _ = ClearHiddenTests().preprocess(release, {})
    (line,) = [line for line in LAB.splitlines() if left in line]
    release.cells[-1].source += "\n" + line
    with pytest.raises(SourceError, match=f'still has a line of .*"{cell}"'):
        check_release(release, source)


def test_a_source_without_tasks_is_no_lab() -> None:
    with pytest.raises(SourceError, match="it is no lab"):
        build_lab(parse_source("# %%\nx = 1\n", "02_x.py"))


def test_notebooks_are_built_where_they_belong(course: Path) -> None:
    lab, notebook = course / "solutions" / "lab77_double.py", course / "notebooks" / "07_double.py"
    assert write_notebook(lab) == (course / "solutions" / "lab77_double" / "lab77_double.ipynb", True)
    assert write_notebook(notebook) == (course / "notebooks" / "07_double.ipynb", True)
    assert write_notebook(lab) == (target_of(lab), False)
    assert not list((course / "solutions").glob("*/*.py"))  # nbgrader would copy it into the release


def test_files_out_of_step_are_named(course: Path) -> None:
    sources = find_sources(root=course)
    missing = [
        "notebooks/07_double.ipynb is missing.",
        "solutions/lab77_double/lab77_double.ipynb is missing.",
    ]
    assert out_of_step(sources, course) == missing
    for source in sources:
        write_notebook(source)
    assert out_of_step(sources, course) == []
    sources[0].write_text("# %%\nx = 3\n")
    assert out_of_step(sources, course) == ["notebooks/07_double.ipynb is not what 07_double.py builds."]


def test_a_release_out_of_step_is_named_and_refreshed(course: Path) -> None:
    sources = find_sources(root=course)
    for source in sources:
        write_notebook(source)
    lab, released = sources[1], course / "labs" / "lab77_double" / "lab77_double.ipynb"
    assert refresh_release(lab, lambda source: "new", course) is None  # nothing was released yet
    released.parent.mkdir(parents=True)
    released.write_text("old")
    found = out_of_step(sources, course, release_text=lambda source: "new")
    assert found == ["labs/lab77_double/lab77_double.ipynb is not what lab77_double.py builds."]
    assert refresh_release(lab, lambda source: "new", course) == (released, True)
    assert out_of_step(sources, course, release_text=lambda source: "new") == []


def test_a_notebook_without_a_source_is_named(course: Path) -> None:
    for source in find_sources(root=course):
        write_notebook(source)
    (course / "notebooks" / "08_gone.ipynb").write_text("{}")
    assert out_of_step(find_sources(root=course), course) == ["notebooks/08_gone.ipynb has no text source."]


def test_names_choose_sources(course: Path) -> None:
    assert [path.stem for path in find_sources(["lab77"], course)] == ["lab77_double"]
    assert [path.stem for path in find_sources(["solutions/lab77_double"], course)] == ["lab77_double"]
    assert [path.stem for path in find_sources(["07"], course)] == ["07_double"]
    with pytest.raises(
        SourceError, match="no text source begins with 'lab99': there are 07_double, lab77_double"
    ):
        find_sources(["lab99"], course)


def test_command_line_builds_and_checks_a_path(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lab = str(course / "solutions" / "lab77_double.py")
    assert main(["--check", lab]) == 1
    assert "lab77_double.ipynb is missing." in capsys.readouterr().err
    assert main([lab]) == 0
    assert main(["--check", lab]) == 0


def test_command_line_shows_broken_rules(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lab = course / "solutions" / "lab77_double.py"
    lab.write_text(LAB.replace("lambda: double(3)", "double"))
    assert main([str(lab)]) == 1
    assert 'line 11: test cell "double_small" gives launch `double` itself' in capsys.readouterr().err


def test_built_lab_goes_through_nbgraders_release_steps() -> None:
    """Every cell keeps its id, and the gradebook would find the 20 points."""
    notebook, _ = ComputeChecksums().preprocess(build_lab(read_source(find_sources(["lab01"])[0])), {})
    MetadataValidator().validate_nb(notebook)
    graded = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade")]
    assert sum(cell.metadata.nbgrader.points for cell in graded) == 20
