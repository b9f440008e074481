"""`python -m autograder COMMAND`: build, release, grade, doctor, bundle, demo."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from autograder.course import Course, UserError
from autograder.hub.commands import add_commands as add_hub_commands
from autograder.people.commands import add_commands
from autograder.sandbox import KINDS


def _release(args: argparse.Namespace) -> int:
    from autograder.gradebook import named
    from autograder.release import release

    course = Course.default()
    for name in args.lab:
        path = release(course, course.lab(name))
        print(f"Released {path} (no answers in it); its tests are noted in {named(course.gradebook_url)}.")
    return 0


def _grade(args: argparse.Namespace) -> int:
    from autograder.grade import grade
    from autograder.report import reasons, table, write_json
    from autograder.versions import compare

    course = replace(Course.default(), sandbox=args.sandbox)
    lab = course.lab(args.lab)
    runner = None
    if (args.executor == "dask") != bool(args.scheduler):
        raise UserError("--executor dask and --scheduler ADDRESS go together: give both or neither.")
    if args.executor == "dask":
        from autograder.cluster import run_on_cluster

        private = replace(course, releases=course.data / "release")
        runner = partial(run_on_cluster, private, address=args.scheduler)
    results = grade(course, lab, args.submissions, args.newest_tests, args.jobs, runner)
    print(table(results), reasons(results), sep="\n\n")
    if args.json:
        write_json(args.json, lab, results)
        print(f"\nJSON: {args.json}")
    if args.compare:
        print(f"\n{compare(course, lab, args.compare)}")
    print(f"\nFeedback for students: {course.data / 'feedback'}/STUDENT/{lab}/{lab}.html")
    lost = sum(result.status == "unreadable" for result in results)
    if lost:
        print(f"{lost} of {len(results)} submissions could not be read; they have no grade.")
    return 1 if lost else 0


def _build(args: argparse.Namespace) -> int:
    from autograder.release import release_text
    from autograder.sources.build import main as build

    return build(args.rest, release_text)


def _doctor(args: argparse.Namespace) -> int:
    from autograder.doctor import doctor

    return doctor(Course.default())


def _bundle(args: argparse.Namespace) -> int:
    from autograder.bundle import bundle

    course = Course.default()
    labs = [course.lab(name) for name in args.labs.split(",")] if args.labs else None
    print(f"The students' bundle is {bundle(course, args.out, labs)}.")
    return 0


def _demo(args: argparse.Namespace) -> int:
    from autograder.demo import demo

    return demo(Course.default())


def parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
    main = argparse.ArgumentParser(prog="python -m autograder", description="Release labs, grade classes.")
    commands = main.add_subparsers(dest="command", required=True)

    one = commands.add_parser(
        "build", help="rebuild notebooks from text sources (--check: only compare)", add_help=False
    )
    one.set_defaults(run=_build)

    one = commands.add_parser("release", help="make a lab's release for students")
    one.add_argument("lab", nargs="+", help="lab01, lab01_allreduce, or a path of it")
    one.set_defaults(run=_release)

    one = commands.add_parser("grade", help="grade a folder of submissions")
    one.add_argument("lab")
    one.add_argument(
        "--submissions",
        type=Path,
        required=True,
        metavar="PLACE",
        help="nbgrader's submitted tree, a folder for each student or of notebooks, or a zip from Canvas or Moodle",
    )
    one.add_argument(
        "--newest-tests",
        action="store_true",
        help="grade hand-ins of an older release by the newest tests, not by those of their own release",
    )
    one.add_argument("--json", type=Path, metavar="FILE", help="also write all results to FILE")
    one.add_argument(
        "--compare",
        metavar="FILE_OR_LAST",
        help="tell whose marks moved and why: since the results before these (last), or those of a kept version's file",
    )
    one.add_argument("--jobs", type=int, metavar="N", help="submissions at once; default: what cores and memory bear")
    one.add_argument(
        "--executor",
        default="here",
        choices=["here", "dask"],
        help="where submissions run: on this machine, or on the Dask cluster of --scheduler",
    )
    one.add_argument("--scheduler", metavar="ADDRESS", help="a Dask scheduler, such as tcp://10.0.0.5:8786")
    one.add_argument(
        "--sandbox",
        default="bubblewrap",
        choices=KINDS,
        help="where students' code runs; none isolates nothing and has to be asked for",
    )
    one.set_defaults(run=_grade)

    add_commands(commands)
    add_hub_commands(commands)

    commands.add_parser("doctor", help="check this machine").set_defaults(run=_doctor)

    one = commands.add_parser("bundle", help="make what students get")
    one.add_argument("--out", type=Path, default=Path("bundle"), help="a folder, or a file that ends in .zip")
    one.add_argument("--labs", help="labs to include, with commas between; default: all that are released")
    one.set_defaults(run=_bundle)

    commands.add_parser("demo", help="ranks, a release and a graded class in a minute").set_defaults(
        run=_demo
    )
    return main


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    args, rest = parser().parse_known_args(argv)
    if rest and args.command != "build":
        parser().error(f"unknown arguments: {' '.join(rest)}")
    args.rest = rest
    try:
        return args.run(args)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
