"""Launching from cells of a real kernel: %%ranks, tracebacks with the cell's line, interrupt, restart, pdb."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

pytestmark = pytest.mark.heavy


class Notebook:
    """A kernel and what its cells print."""

    def __init__(self, folder: Path) -> None:
        self.mark = uuid.uuid4().hex
        self.manager = KernelManager(kernel_name="python3")
        env = {**os.environ, "LEFTOVER_MARK": self.mark, "IPYTHONDIR": str(folder)}
        self.manager.start_kernel(env=env, extra_arguments=["--HistoryManager.enabled=False"])
        self.client: BlockingKernelClient = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def run(self, code: str, answers: list[str] | None = None, timeout: float = 90) -> str:
        """Run a cell; returns all its text (streams, displays, errors). `answers` are typed at its prompts."""
        texts: list[str] = []
        typed = iter(answers or [])

        def output(message: dict) -> None:
            content = message["content"]
            kind = message["msg_type"]
            if kind == "stream":
                texts.append(content["text"])
            elif kind in ("display_data", "execute_result", "update_display_data"):
                texts.append(content["data"].get("text/plain", "") + "\n")
            elif kind == "error":
                texts.append("\n".join(content["traceback"]) + "\n")

        def stdin(message: dict) -> None:
            texts.append(message["content"]["prompt"])
            self.client.input(next(typed))

        self.client.execute_interactive(
            code, output_hook=output, stdin_hook=stdin, allow_stdin=answers is not None, timeout=timeout
        )
        return "".join(texts)

    def start(self, code: str, word: str) -> str:
        """Begin a cell that does not end by itself; returns its message id once it printed `word`."""
        self.client.execute(code)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            content = self.client.get_iopub_msg(timeout=60)["content"]
            if word in str(content.get("text", "")):
                return word
        raise AssertionError(f"no {word!r} within 60 s")

    def processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                if process.status() != psutil.STATUS_ZOMBIE and process.environ().get("LEFTOVER_MARK") == self.mark:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    made = Notebook(tmp_path_factory.mktemp("ipython"))
    made.run("import torch, torch.distributed as dist, time\nfrom utils import launch")
    yield made
    made.close()
    until = time.monotonic() + 60
    while made.processes() and time.monotonic() < until:
        time.sleep(0.1)
    assert made.processes() == []


def test_a_function_from_a_cell_runs_on_ranks(book: Notebook) -> None:
    book.run("scale = 3.0\nclass Box:\n    def __init__(self, v): self.v = v")
    text = book.run("def probe():\n    return Box(scale * dist.get_rank()).v\nlaunch(probe, ranks=4).values")
    assert "[0.0, 3.0, 6.0, 9.0]" in text


def test_an_error_shows_the_line_of_the_cell_and_nothing_of_ours(book: Notebook) -> None:
    text = book.run("def probe():\n    x = dist.get_rank()\n    return 1 / x\nlaunch(probe, ranks=2)")
    assert "rank 0 raised ZeroDivisionError, line 3 of cell In[" in text and "return 1 / x" in text
    assert "site-packages" not in text and "api.py" not in text


def test_a_deadlock_names_the_cell(book: Notebook) -> None:
    text = book.run("def probe():\n    if dist.get_rank():\n        dist.barrier()\nlaunch(probe, ranks=2)")
    assert "Deadlock: every rank waits" in text and "rank 0 never reached barrier #1 (group world)" in text
    assert "rank 1 waits there, line 3 of cell In[" in text


def test_ranks_magic_runs_the_body_and_groups_output(book: Notebook) -> None:
    book.run("offset = 10")
    text = book.run(
        "%%ranks 3\nx = torch.tensor([float(rank + offset)])\ndist.all_reduce(x)\nprint('sum', x.item(), world_size)"
    )
    assert [f"rank {r} | sum 33.0 3" in text for r in range(3)] == [True] * 3


def test_ranks_magic_reports_its_own_lines(book: Notebook) -> None:
    text = book.run(
        "%%ranks 2\nx = torch.ones(2)\nif rank == 1:\n    raise ValueError('bad chunk')\ndist.all_reduce(x)"
    )
    assert "rank 1 raised ValueError, line 4 of cell In[" in text and "bad chunk" in text
    assert "write a number of ranks" in book.run("%%ranks many\n1")
    assert "line 2 of this cell" in book.run("%%ranks 2\nx = = 1")


def test_one_rank_is_stepped_under_pdb_while_the_others_wait(book: Notebook) -> None:
    code = "def probe():\n    x = torch.tensor([1.0 + dist.get_rank()])\n    dist.all_reduce(x)\n    return x.item()\n"
    code += "launch(probe, ranks=3, debug=1, timeout=1).values"
    typed = ["n", "p x", "!import time; time.sleep(2)", "n", "p x", "c"]
    text = book.run(code, typed)
    assert "tensor([2.])" in text and "tensor([6.])" in text and "[6.0, 6.0, 6.0]" in text
    assert "-> dist.all_reduce(x)" in text  # the line of the cell is shown at the prompt


def test_interrupt_ends_the_ranks_and_the_kernel_goes_on(book: Notebook) -> None:
    book.start("def probe():\n    print('started')\n    time.sleep(1000)\nlaunch(probe, ranks=2)", "started")
    time.sleep(0.5)
    book.manager.interrupt_kernel()
    until = time.monotonic() + 30
    seen = ""
    while "interrupted. Where the ranks were" not in seen and time.monotonic() < until:
        seen += str(book.client.get_iopub_msg(timeout=30)["content"].get("traceback", ""))
    assert "ranks 0 and 1 are at line 3 of cell In[" in seen
    time.sleep(1)  # a kernel drops cells that were sent before it told of the interrupt
    assert "[0, 1]" in book.run("launch(dist.get_rank, ranks=2).values")


def test_a_kernel_that_used_threads_may_launch(book: Notebook) -> None:
    text = book.run(
        "import threading\ntorch.set_num_threads(2); (torch.ones(512, 512) @ torch.ones(512, 512)).sum()\n"
        "t = threading.Thread(target=time.sleep, args=(2,)); t.start()\nlaunch(dist.get_rank, ranks=2).values"
    )
    assert "[0, 1]" in text


def test_a_restart_leaves_no_rank_behind(book: Notebook) -> None:
    book.start("def probe():\n    print('started')\n    time.sleep(1000)\nlaunch(probe, ranks=4)", "started")
    before = {p.pid for p in book.processes()}
    book.manager.restart_kernel(now=True)
    book.client.wait_for_ready(timeout=60)
    until = time.monotonic() + 60
    while before & {p.pid for p in book.processes()} and time.monotonic() < until:
        time.sleep(0.05)
    assert not before & {p.pid for p in book.processes()}
    assert "[0, 1]" in book.run(
        "import torch.distributed as dist\nfrom utils import launch\nlaunch(dist.get_rank, ranks=2).values"
    )
