"""A class's week in a browser: an instructor releases, students fetch, work and hand in, marks and comments go back.

Each step leaves a picture; the folder is named in the output. One student hands in the reference. The other's answer
hangs, and looks around in the grader for what it should not see.
"""

from __future__ import annotations

import json
import re

import nbformat
import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="make test-hub has an environment with a browser")

from autograder.course import REPO  # noqa: E402
from autograder.hub.settings import run_as_grader  # noqa: E402
from tests.hub import spying  # noqa: E402
from tests.hub.a_class import RunningClass  # noqa: E402
from tests.hub.browsing import Instructor, Student, open_browser, pictures_folder, until  # noqa: E402

pytestmark = [pytest.mark.hub, pytest.mark.timeout(900)]
LAB = "lab01_allreduce"
NOTEBOOK = f"course/labs/{LAB}/{LAB}.ipynb"
HANGS = '''def broadcast(x: torch.Tensor, src: int) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank == src:
        for other in range(world - 1):
            if other != src:
                dist.send(x, other)
    else:
        dist.recv(x, src)
'''
ERROR = ".jp-OutputArea-output[data-mime-type$='stderr']"


def reference() -> dict[str, str]:
    """The reference's solution cells as a student would have typed them."""
    notebook = nbformat.read(REPO / "solutions" / LAB / f"{LAB}.ipynb", as_version=4)
    cells = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("solution")]
    return {
        cell.id: "\n".join(line for line in cell.source.splitlines() if not re.match(r"\s*### (BEGIN|END)", line))
        for cell in cells
    }


def test_a_lab_from_release_to_feedback(klass: RunningClass, capsys: pytest.CaptureFixture[str]) -> None:
    pictures = pictures_folder()
    with capsys.disabled():
        print(f"\nPictures of each step: {pictures}", flush=True)
    with playwright.sync_playwright() as driver:
        browser = open_browser(driver)
        people = {
            name: kind(browser, klass.url, name, klass.passwords[name], pictures)
            for name, kind in (("grace", Instructor), ("ada", Student), ("bo", Student))
        }
        grace, ada, bo = people["grace"], people["ada"], people["bo"]
        try:
            release(grace)
            hand_in(ada)
            hand_in_what_hangs(bo, klass)
            collect_and_grade(grace, klass)
            mark_by_hand(grace)
            give_back(grace)
            report(grace, klass)
            read_feedback(ada, klass, "20.5 of 20 points", ["Well done, Ada"])
            read_feedback(bo, klass, "19 of 20 points", ["every rank waits", "rank 1 waits in recv"])
        except BaseException:
            for person in people.values():
                person.picture("failed_here")
            raise
        finally:
            browser.close()


def release(grace: Instructor) -> None:
    grace.page.goto(grace.url)
    grace.picture("login")
    grace.log_in()
    grace.picture("index")
    grace.manage("llm")
    grace.picture("formgrader")
    assert "Successfully released" in grace.press(LAB, "release")
    grace.picture("released")
    grace.close()


def hand_in(ada: Student) -> None:
    ada.log_in()
    ada.run_all()  # the index tells where a student stands, and runs a cell on four ranks
    index = ada.page.locator(".jp-NotebookPanel").text_content()
    assert "rank 3: 0 + 1 + 2 + 3 = 6" in index and "Nbgrader > Assignment List" in index
    ada.picture("index_run")
    ada.menu("File", "New Launcher")
    ada.page.locator(".jp-LauncherCard").first.wait_for()
    ada.picture("launcher")
    ada.menu("Nbgrader")
    assert ada.page.locator(".lm-Menu-item", has_text="Formgrader").count() == 0
    ada.page.keyboard.press("Escape")
    see_a_timeline(ada)
    ada.fetch("lab01")
    ada.picture("fetched")

    ada.open(NOTEBOOK)
    ada.picture("lab")
    ada.run_all()
    assert "NotImplementedError" in ada.output("def probe_broadcast_reduce", ERROR).text_content()
    ada.picture("lab_blank_run")
    said = ada.validate()
    ada.page.locator(".jp-Dialog pre").last.scroll_into_view_if_needed()
    ada.picture("validate_blank")
    assert "The following cell failed" in said and "probe_broadcast_reduce" in said and "NotImplementedError" in said
    ada.close_dialog()

    released = nbformat.read(REPO / "labs" / LAB / f"{LAB}.ipynb", as_version=4)
    answers = reference()
    for cell in released.cells:
        if cell.id in answers:
            head = re.escape(cell.source.partition("(")[0])
            ada.paste(ada.cell(re.compile(rf"{head}\(.*YOUR CODE HERE", re.DOTALL)), answers[cell.id])
    ada.save()
    ada.run_all()
    expect_plot(ada)
    said = ada.validate()
    ada.picture("validate_right")
    assert "Success! Your notebook passes all the tests." in said
    ada.close_dialog()
    ada.submit("lab01")
    ada.picture("submitted")


def see_a_timeline(ada: Student) -> None:
    """The first notebook's timeline, in a notebook of ada's own: a late rank, and three that wait for it."""
    first = nbformat.read(REPO / "notebooks" / "00_start_here.ipynb", as_version=4)
    code = [cell for cell in first.cells if cell.cell_type == "code"]
    first.cells = [code[0], *(cell for cell in code if "run.trace.plot()" in cell.source)][:2]
    body = json.dumps({"type": "notebook", "content": first})
    ada.ask("PUT", "/user/ada/api/contents/timeline.ipynb", body)
    ada.open("timeline.ipynb")
    ada.run_all()
    plot = ada.output("def add_three_times", "img")
    ada.picture("timeline")
    assert plot.bounding_box()["width"] > 300


def expect_plot(ada: Student) -> None:
    """The measurement cell has drawn its curves: bring them into view."""
    plot = ada.output("import time_on_ranks", "img")
    ada.picture("measured")
    assert plot.bounding_box()["width"] > 300


def hand_in_what_hangs(bo: Student, klass: RunningClass) -> None:
    bo.log_in()
    form, base = "application/x-www-form-urlencoded", f"/user/bo/assignments/{{}}?course_id=llm&assignment_id={LAB}"
    assert json.loads(bo.ask("POST", base.format("fetch"), f"course_id=llm&assignment_id={LAB}", form))["success"]
    notebook = json.loads(bo.ask("GET", f"/user/bo/api/contents/{NOTEBOOK}"))["content"]
    answers = reference() | {"broadcast": spying.spy(klass) + HANGS}  # cells after the test that fails do not run
    for cell in notebook["cells"]:
        cell["source"] = answers.get(cell["id"], cell["source"])
    bo.ask("PUT", f"/user/bo/api/contents/{NOTEBOOK}", json.dumps({"type": "notebook", "content": notebook}))
    assert json.loads(bo.ask("POST", base.format("submit"), f"course_id=llm&assignment_id={LAB}", form))["success"]
    bo.open(NOTEBOOK)
    bo.run_all()
    expect_hang_report(bo)
    bo.save()
    saved = json.loads(bo.ask("GET", f"/user/bo/api/contents/{NOTEBOOK}"))["content"]
    saw_only_what_is_bos(spying.seen(printed(nbformat.from_dict(saved))), klass)


def expect_hang_report(bo: Student) -> None:
    """The kernel says who waits for whom, long before any timeout."""
    told = bo.output("def probe_broadcast_reduce", ERROR)
    bo.picture("hang_in_the_notebook")
    assert "every rank waits" in told.text_content() and "waits in recv" in told.text_content()


def collect_and_grade(grace: Instructor, klass: RunningClass) -> None:
    grace.manage("llm")
    assert "ada" in grace.press(LAB, "collect")
    grace.picture("collected")
    grace.close()
    grace.formgrader("llm", f"manage_submissions/{LAB}")
    for name in ("ada", "bo"):
        assert "Success" in grace.press(name, "autograde")
        grace.picture(f"autograded_{name}")
        grace.close()
    saw_nothing(klass)


def mark_by_hand(grace: Instructor) -> None:
    grace.manage("llm")
    rows = json.loads(grace.ask("GET", f"/services/llm/formgrader/api/submitted_notebooks/{LAB}/{LAB}"))
    ids = {row["student"]: row["id"] for row in rows}
    grace.formgrader("llm", f"submissions/{ids['ada']}/?index=0")
    grace.page.wait_for_selector("#broadcast-comment")
    comment = grace.page.locator("#broadcast-comment")
    comment.fill("Well done, Ada: one send a rank, and no copy.")
    comment.press("Tab")
    extra = grace.page.locator("#ring_traffic_extra_credit")
    extra.fill("0.5")
    extra.press("Tab")
    until("the mark and the comment are saved", lambda: saved(grace, ids["ada"]))
    comment.scroll_into_view_if_needed()
    grace.picture("comment")
    extra.scroll_into_view_if_needed()
    grace.picture("manual_mark")


def give_back(grace: Instructor) -> None:
    grace.manage("llm")
    for column in ("generate-feedback", "release-feedback"):
        assert "Success" in grace.press(LAB, column)
        grace.picture(column)
        grace.close()


def saved(grace: Instructor, submission: str) -> bool:
    grades = json.loads(grace.ask("GET", f"/services/llm/formgrader/api/grades?submission_id={submission}"))
    comments = json.loads(grace.ask("GET", f"/services/llm/formgrader/api/comments?submission_id={submission}"))
    marked = [grade for grade in grades if grade["name"] == "ring_traffic" and grade["extra_credit"] == 0.5]
    return bool(marked) and any("Well done" in (comment["manual_comment"] or "") for comment in comments)


def printed(notebook: nbformat.NotebookNode) -> str:
    return "".join(out.get("text", "") for cell in notebook.cells for out in cell.get("outputs", []))


def saw_only_what_is_bos(seen: dict[str, list], klass: RunningClass) -> None:
    """In bo's own server: no path of others, the hub's public page, and no door that bo's own token opens."""
    assert seen["paths"] == []
    assert seen["answers"][0] == 200 and {*seen["answers"][1:]} <= {403, 404}, seen["answers"]
    outside = spying.seen_outside(klass)
    submitted = str(klass.layout.data / "submitted" / "ada")  # not yet collected
    assert outside["paths"] == [path for path in spying.secrets(klass) if path != submitted]


def saw_nothing(klass: RunningClass) -> None:
    """What bo's cell printed when it ran in the grader: no token, none of the paths, no way to the hub."""
    graded = nbformat.read(klass.layout.data / "autograded" / "bo" / LAB / f"{LAB}.ipynb", as_version=4)
    doors = len(spying.doors(klass))
    assert spying.seen(printed(graded)) == {"tokens": [], "paths": [], "answers": [0] * doors}
    assert graded.metadata.grading.isolation.startswith("bubblewrap")
    outside = spying.seen_outside(klass)
    assert outside["paths"] == spying.secrets(klass) and "JUPYTERHUB_API_TOKEN" in outside["tokens"]
    assert outside["answers"][0] == 200 and 0 not in outside["answers"]


def report(grace: Instructor, klass: RunningClass) -> None:
    layout = klass.layout
    page = layout.data / "report.html"
    done = run_as_grader(layout, "-m", "autograder", "report", "lab01", "--html", str(page), timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    grace.page.goto(f"{grace.url}services/llm/files/report.html")
    grace.picture("class_report", whole=True)
    assert "lab01" in grace.page.content()


def read_feedback(student: Student, klass: RunningClass, score: str, wanted: list[str]) -> None:
    student.fetch_feedback("lab01")
    student.picture("feedback_fetched")
    (found,) = klass.layout.home(student.name).glob(f"course/labs/{LAB}/feedback/*/{LAB}.html")
    place = found.relative_to(klass.layout.home(student.name))
    student.page.goto(f"{student.url}user/{student.name}/files/{place}")
    text = student.page.inner_text("body")
    student.picture("feedback", whole=True)
    for word in [score, *wanted]:
        assert word in text, f"{word!r} is not in the feedback of {student.name}"
    hidden = hidden_lines()
    assert hidden and [line for line in hidden if line in student.page.content()] == []


def hidden_lines() -> list[str]:
    """Lines that stand in the lab's hidden tests alone."""
    text = (REPO / "solutions" / LAB / f"{LAB}.ipynb").read_text(encoding="utf-8")
    released = (REPO / "labs" / LAB / f"{LAB}.ipynb").read_text(encoding="utf-8")
    blocks = re.findall(r"### BEGIN HIDDEN TESTS(.*?)### END HIDDEN TESTS", text, re.DOTALL)
    lines = {line.strip(' ",').removesuffix("\\n") for block in blocks for line in block.splitlines()}
    return [line for line in lines if len(line) > 20 and line not in released]
