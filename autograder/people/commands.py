"""The commands for people: `report`, `export`, `gradebook copy`, and `sample`, which writers of a lab use."""

from __future__ import annotations

import argparse
from pathlib import Path

from autograder.course import Course, UserError


def add_commands(commands: argparse._SubParsersAction) -> None:
    """Add the commands to the command line's grammar."""
    one = commands.add_parser("report", help="how a graded class went: tests, misconceptions, alike answers")
    one.add_argument("lab")
    one.add_argument("--html", type=Path, metavar="FILE", help="also write a page with plots to FILE")
    one.add_argument("--json", type=Path, metavar="FILE", help="also write all of it to FILE")
    one.set_defaults(run=_report)

    one = commands.add_parser("export", help="scores as CSV: for yourself, Canvas or Moodle")
    one.add_argument("lab")
    one.add_argument("--format", choices=("gradebook", "canvas", "moodle"), default="gradebook")
    one.add_argument("--out", type=Path, required=True, metavar="FILE")
    one.add_argument(
        "--roster",
        type=Path,
        metavar="FILE",
        help="the CSV that Canvas's gradebook or Moodle's grading worksheet gives: it is filled in",
    )
    one.set_defaults(run=_export)

    one = commands.add_parser("gradebook", help="copy a gradebook: from its file to a PostgreSQL server, or back")
    inner = one.add_subparsers(dest="gradebook_command", required=True)
    one = inner.add_parser("copy", help="copy all rows, compare them, and say how many there are")
    one.add_argument("source", metavar="FROM", help="a file, or postgresql+psycopg://USER@HOST/DATABASE")
    one.add_argument("target", metavar="TO", help="the same; it has to be empty")
    one.set_defaults(run=_copy)

    one = commands.add_parser("sample", help="make hand-ins from answer files, to try a lab's grading")
    one.add_argument("lab")
    one.add_argument("--answers", type=Path, required=True, metavar="DIR", help="text sources with a student's name")
    one.add_argument("--out", type=Path, required=True, metavar="DIR")
    one.set_defaults(run=_sample)


def _report(args: argparse.Namespace) -> int:
    from autograder.people.class_page import class_page
    from autograder.people.class_report import class_report, summary

    course = Course.default()
    report = class_report(course, course.lab(args.lab))
    print(summary(report))
    for path, text in ((args.html, lambda: class_page(report)), (args.json, report.as_json)):
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text() + "\n", encoding="utf-8")
            print(f"\nWritten: {path}")
    return 0


def _export(args: argparse.Namespace) -> int:
    from autograder.people.export import export, write
    from autograder.people.roll import class_of

    course = Course.default()
    lab = course.lab(args.lab)
    made = export(class_of(course, lab), lab, args.format, args.roster)
    write(made.rows, args.out, made.delimiter, made.mark)
    print(f"Written: {args.out}")
    if made.without_grade:
        print(f"Left empty, since there is no grade: {', '.join(made.without_grade)}.")
    if made.decided:
        print(f"Left as Canvas has it, excused (EX) or not assigned (N/A): {', '.join(made.decided)}.")
    if made.not_found:
        print(f"Not found in {args.roster}, or there more than once: {', '.join(made.not_found)}; enter these by hand.")
    return 1 if made.not_found else 0


def _copy(args: argparse.Namespace) -> int:
    from autograder.gradebook import is_file, named
    from autograder.moving import copy, place

    source, target = place(args.source), place(args.target)
    if source == target:
        raise UserError("FROM and TO are the same gradebook.")
    counts = copy(source, target)
    print(f"Copied {sum(counts.values())} rows: {', '.join(f'{n} {name}' for name, n in counts.items() if n)}.")
    if not is_file(target):
        print(f'The class uses it from now on with this line in its course.toml:\ngradebook = "{named(target)}"')
    return 0


def _sample(args: argparse.Namespace) -> int:
    from autograder.sample import write_class
    from autograder.sources.cells import SourceError

    course = Course.default()
    lab = course.lab(args.lab)
    if not (course.releases / lab / f"{lab}.ipynb").is_file():
        raise UserError(f"{lab} is not released yet: `python -m autograder release {lab}` first.")
    try:
        samples = write_class(course, lab, args.answers, args.out)
    except SourceError as error:
        raise UserError(str(error)) from None
    if not samples:
        raise UserError(f"{args.answers} holds no answer file, that is, no .py file.")
    for sample in samples:
        print(f"{args.out / sample.student / lab / lab}.ipynb: {sample.about}")
    return 0
