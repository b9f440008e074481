"""The class report as a web page."""

from __future__ import annotations

from autograder.people.class_report import ClassReport
from autograder.people.pages import render
from autograder.people.plots import as_png, plot_scores, plot_tests

MOST_PAIRS = 40


def class_page(report: ClassReport) -> str:
    """HTML of the report, its plots inside; code of the students in alike pairs is shown side by side."""
    pictures = {"scores_png": "", "tests_png": ""}
    if report.scores:
        scores = list(report.scores.values())
        height = 1.2 + 0.3 * len(report.tests)
        pictures = {
            "scores_png": as_png(lambda ax: plot_scores(scores, report.max_score, ax), 9, 3),
            "tests_png": as_png(lambda ax: plot_tests(report.hardest, ax), 9, height),
        }
    return render("class_report.html.j2", report=report, most_pairs=MOST_PAIRS, **pictures)
