"""Build notebooks from text sources, the same bytes every time, and say which built files are out of step.

    python -m autograder build                 everything: notebooks/*.py and solutions/lab*.py
    python -m autograder build lab01 02        those whose file name begins so
    python -m autograder build --check         writes nothing; non-zero, naming files out of step

A notebook is built beside its source, a lab in a folder of its own below solutions/, as nbgrader wants it. A
lab that has been released already is released again.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from autograder.sources.cells import Cell, Source, SourceError, read_source
from autograder.sources.rules import check_source

ROOT = Path(__file__).resolve().parents[2]
KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


def build_notebook(source: Source) -> nbformat.NotebookNode:
    """The notebook of a source: no outputs, ids from the text alone. SourceError where a rule is broken."""
    check_source(source)
    seen: dict[str, int] = {}
    notebook = new_notebook(
        cells=[_notebook_cell(cell, seen) for cell in source.cells],
        metadata={"kernelspec": KERNELSPEC, "language_info": {"name": "python"}},
    )
    nbformat.validate(notebook)
    return notebook


def build_lab(source: Source) -> nbformat.NotebookNode:
    """The instructor's notebook of a lab; SourceError also where the source holds no lab."""
    if not source.is_lab:
        raise SourceError(f"{source.path.name} has no solution or test cell, so it is no lab.")
    return build_notebook(source)


def notebook_text(notebook: nbformat.NotebookNode) -> str:
    """The text of a notebook file, always the same for the same notebook."""
    return nbformat.writes(notebook, version=4) + "\n"


def target_of(source: Path) -> Path:
    """Where the notebook of a text source belongs."""
    if source.parent.name == "solutions":
        return source.parent / source.stem / f"{source.stem}.ipynb"
    return source.with_suffix(".ipynb")


def find_sources(names: Sequence[str] = (), root: Path = ROOT) -> list[Path]:
    """The text sources whose file name begins with one of `names` (all of them without names).

    A name may also be a path. SourceError where a name fits none.
    """
    known = sorted(root.glob("notebooks/*.py")) + sorted(root.glob("solutions/*.py"))
    if not names:
        return known
    found = []
    for name in names:
        path = Path(name)
        fits = [path.resolve()] if path.suffix == ".py" and path.is_file() else []
        fits = fits or [source for source in known if source.stem.startswith(path.stem)]
        if not fits:
            raise SourceError(
                f"no text source begins with {name!r}: there are {', '.join(s.stem for s in known)}."
            )
        found += [source for source in fits if source not in found]
    return found


def write_notebook(source: Path) -> tuple[Path, bool]:
    """Build one source's notebook; (its path, whether the file changed)."""
    target = target_of(source)
    return target, _write(target, notebook_text(build_notebook(read_source(source))))


def refresh_release(
    source: Path, release_text: Callable[[Path], str], root: Path = ROOT
) -> tuple[Path, bool] | None:
    """Rebuild a lab's release where there is one: (its path, whether it changed); else None."""
    released = release_of(source, root)
    return (released, _write(released, release_text(source))) if released.is_file() else None


def release_of(source: Path, root: Path = ROOT) -> Path:
    """Where the release of a lab's text source belongs."""
    return root / "labs" / source.stem / f"{source.stem}.ipynb"


def _write(target: Path, text: str) -> bool:
    if target.is_file() and target.read_text(encoding="utf-8") == text:
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    return True


def out_of_step(
    sources: Sequence[Path], root: Path = ROOT, release_text: Callable[[Path], str] | None = None
) -> list[str]:
    """One sentence for each built file that is not what its source builds.

    `release_text(source)` gives the text of a lab's release; with it, releases in labs/ are compared too.
    """
    problems = []
    for source in sources:
        expected = {target_of(source): notebook_text(build_notebook(read_source(source)))}
        released = release_of(source, root)
        if release_text and source.parent.name == "solutions" and released.is_file():
            expected[released] = release_text(source)
        for target, text in expected.items():
            name = target.relative_to(root) if target.is_relative_to(root) else target
            if not target.is_file():
                problems.append(f"{name} is missing.")
            elif target.read_text(encoding="utf-8") != text:
                problems.append(f"{name} is not what {source.name} builds.")
    return problems + _orphans(sources, root)


def _orphans(sources: Sequence[Path], root: Path) -> list[str]:
    built = {target_of(source).resolve() for source in sources} | {
        target_of(source).resolve() for source in find_sources(root=root)
    }
    files = sorted(root.glob("notebooks/*.ipynb")) + sorted(root.glob("solutions/*/*.ipynb"))
    return [f"{f.relative_to(root)} has no text source." for f in files if f.resolve() not in built]


def _notebook_cell(cell: Cell, seen: dict[str, int]) -> nbformat.NotebookNode:
    make = new_markdown_cell if cell.kind == "markdown" else new_code_cell
    metadata: dict = {"tags": list(cell.tags)} if cell.tags else {}
    if cell.name:
        metadata["nbgrader"] = _nbgrader(cell)
    return make(cell.text, id=_cell_id(cell, seen), metadata=metadata)


def _nbgrader(cell: Cell) -> dict:
    """nbgrader's own words (schema 3) for a shared, solution or test cell."""
    meta = {
        "grade": cell.kind == "test",
        "grade_id": cell.name,
        "locked": cell.kind != "solution",
        "schema_version": 3,
        "solution": cell.kind == "solution",
        "task": False,
    }
    return meta | ({"points": cell.points} if cell.kind == "test" else {})


def _cell_id(cell: Cell, seen: dict[str, int]) -> str:
    """The grade id, or a digest of the text; a second cell of the same text gets a number."""
    if cell.name:
        return cell.name
    digest = hashlib.sha256(f"{cell.kind}\n{cell.text}".encode()).hexdigest()[:12]
    seen[digest] = seen.get(digest, 0) + 1
    return digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"


def main(argv: Sequence[str] | None = None, release_text: Callable[[Path], str] | None = None) -> int:
    """The command line of `python -m autograder build`; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m autograder build", description="Build notebooks from text sources."
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="beginnings of file names, e.g. lab01 (default: all)"
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail when a built file is out of step"
    )
    options = parser.parse_args(argv)
    try:
        sources = find_sources(options.names)
        if options.check:
            return _report(out_of_step(sources, release_text=release_text), len(sources))
        for source in sources:
            built = [write_notebook(source)]
            if release_text and source.parent.name == "solutions":
                built.append(refresh_release(source, release_text))
            for target, changed in filter(None, built):
                shown = target.relative_to(ROOT) if target.is_relative_to(ROOT) else target
                print(f"{'built' if changed else 'same '} {shown}")
    except SourceError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _report(problems: list[str], count: int) -> int:
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        print("Run `make notebooks` and commit what it builds.", file=sys.stderr)
        return 1
    print(f"{count} text sources, every built notebook in step.")
    return 0
