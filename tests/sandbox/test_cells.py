"""Cells in a sandbox run as in a notebook: magics, pictures, await, and errors with their line."""

from __future__ import annotations

import base64

from tests.sandbox.conftest import printed, see


def test_names_stay_and_the_last_value_is_shown(inside) -> None:
    assert inside.cell(1, "x = 6", 20).outputs == []
    run = inside.cell(2, "x * 7", 20)
    assert run.outputs[0]["output_type"] == "execute_result" and run.outputs[0]["data"] == {"text/plain": "42"}
    assert inside.cell(3, "x * 7;", 20).outputs == []
    assert see(inside, "", "_2") == 42


def test_error_has_kind_text_and_line(inside) -> None:
    run = inside.cell(4, "y = 1\n\nz = y / 0\nw = 2", 20)
    assert (run.status, run.ename, run.evalue, run.line) == ("error", "ZeroDivisionError", "division by zero", 3)
    shown = run.outputs[-1]
    assert shown["output_type"] == "error" and any("z = y / 0" in line for line in shown["traceback"])
    assert inside.cell(5, "def f(:\n    pass", 20).line == 1
    assert inside.cell(6, "import sys; sys.exit(3)", 20).ename == "SystemExit"


def test_error_whose_text_cannot_be_made(inside) -> None:
    code = "class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd()"
    assert inside.cell(7, code, 20).status == "error"
    assert see(inside, "", "1") == 1


def test_error_with_a_text_of_megabytes(inside) -> None:
    run = inside.cell(8, "raise ValueError('x' * 10_000_000)", 20)
    assert run.ename == "ValueError" and len(run.evalue) < 30_000


def test_magics_shell_and_await(inside) -> None:
    assert printed(inside.cell(9, "!echo one two | wc -w", 20)).strip() == "2"
    assert "Wall time" in printed(inside.cell(10, "%time 1 + 1", 20))
    assert see(inside, "import asyncio\nawait asyncio.sleep(0.01)\ndone = True", "done") is True
    assert "[rank 1] 1" in printed(inside.cell(11, "%%ranks 2\nprint(rank)", 30))


def test_figure_is_shown_as_png(inside) -> None:
    run = inside.cell(12, "import matplotlib.pyplot as plt\nprint('before')\nplt.plot([1, 2]);", 30)
    kinds = [o["output_type"] for o in run.outputs]
    assert kinds == ["stream", "display_data"]
    assert base64.b64decode(run.outputs[1]["data"]["image/png"]).startswith(b"\x89PNG")


def test_html_is_not_taken_from_students(inside) -> None:
    code = "from IPython.display import HTML, display\ndisplay(HTML('<script>alert(1)</script>'))"
    run = inside.cell(13, code, 20)
    assert set(run.outputs[0]["data"]) == {"text/plain"} and "script" not in str(run.outputs)


def test_clear_output(inside) -> None:
    code = "from IPython.display import clear_output\nprint('old')\nclear_output()\nprint('new')"
    assert printed(inside.cell(14, code, 20)) == "new\n"


def test_input_is_refused_in_words(inside) -> None:
    run = inside.cell(15, "name = input('who? ')", 20)
    assert (run.status, run.ename) == ("error", "RuntimeError") and "nobody to ask" in run.evalue


def test_forked_copy_that_runs_on_has_no_say(inside) -> None:
    run = inside.cell(16, "import os\npid = os.fork()\nprint('here' if pid else 'copy', flush=True)", 20)
    assert run.status == "ok"
    assert see(inside, "", "pid > 0") is True


def test_cell_that_breaks_the_shell(opened) -> None:
    _, channel = opened()
    run = channel.cell(1, "get_ipython().run_cell_async = None\nget_ipython().run_cell = None", 20)
    assert run.status in ("ok", "error")
    assert channel.cell(2, "1", 20).status == "error"


def test_student_launch_in_a_cell(inside) -> None:
    code = "from utils import launch\nimport torch.distributed as dist\nrun = launch(lambda: dist.get_rank(), ranks=3)"
    assert see(inside, code, "run.values") == [0, 1, 2]
