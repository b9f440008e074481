"""`make demo`: what the course does, in about two minutes: ranks, a release, a graded class."""

from __future__ import annotations

import shutil
from dataclasses import replace

from autograder.course import Course
from autograder.grade import grade
from autograder.release import release
from autograder.report import reasons, table, write_json
from autograder.sample import SAMPLE_CLASS, write_class
from autograder.sandbox import why_not

LAB = "lab01"


def demo(course: Course) -> int:
    """Run the demonstration in `demo/` of the course-data folder, anew each time; the exit code."""
    course = replace(course.with_data(course.data / "demo"), releases=course.data / "demo" / "labs")
    shutil.rmtree(course.data, ignore_errors=True)
    course.prepare()
    lab = course.lab(LAB)

    print("1. Four ranks, one AllReduce", flush=True)
    show_ranks()

    print("\n2. The release of the first lab", flush=True)
    print(f"   {release(course, lab)}")

    print("\n3. A class of submissions, graded", flush=True)
    reason = why_not(course.sandbox)
    if reason:
        print(f"   Without a sandbox, which is for the project's own samples only: {reason}")
        course = replace(course, sandbox="none")
    samples = write_class(course, lab, SAMPLE_CLASS, course.data / "class")
    for sample in samples:
        print(f"   {sample.student}: {sample.about}")
    results = grade(course, lab, course.data / "class")
    write_json(course.data / "grades.json", lab, results)
    print("\n" + table(results) + "\n\n" + reasons(results))

    print(f"\nAll of it as JSON: {course.data / 'grades.json'}")
    partly = next(result for result in results if 0 < result.score < result.max_score)
    print(f"Feedback, one page a student, such as {partly.feedback}")
    print("make lab opens the course")
    return 0


def show_ranks() -> None:
    """Launch four ranks that add up their tensors and print what each holds."""
    from utils import launch

    run = launch(add_up, ranks=4)
    for rank, (before, after) in enumerate(run.values):
        print(f"   rank {rank}: {before} -> {after}")
    print(f"   four fresh processes, from the call to their values: {run.seconds:.2f} s")


def add_up() -> tuple[list[float], list[float]]:
    """A rank's tensor before and after the AllReduce."""
    import torch
    import torch.distributed as dist

    x = torch.arange(3.0) + 10 * dist.get_rank()
    before = x.tolist()
    dist.all_reduce(x)
    return before, x.tolist()
