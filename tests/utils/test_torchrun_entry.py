"""The same function under torchrun, and what srun's variables become."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from utils.torchrun_entry import load, plain, read_slurm


@pytest.mark.heavy
def test_a_probe_runs_under_torchrun_unchanged(tmp_path: Path) -> None:
    script, out = tmp_path / "step.py", tmp_path / "values.json"
    script.write_text(
        "import torch, torch.distributed as dist\n"
        "def probe():\n    x = torch.tensor([1.0 + dist.get_rank()])\n    dist.all_reduce(x)\n    return x\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"]
    command += ["-m", "utils.torchrun_entry", f"{script}:probe", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert json.loads(out.read_text()) == [[6.0]] * 3 and "[rank 2] [6.0]" in done.stdout


def test_slurm_gives_what_torchrun_would() -> None:
    env = {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "SLURM_JOB_NODELIST": "gpu[03-05,09]"}
    read = read_slurm({**env, "SLURM_JOB_ID": "41234"})
    assert read["RANK"] == "5" and read["WORLD_SIZE"] == "8" and read["LOCAL_RANK"] == "1"
    assert read["MASTER_ADDR"] == "gpu03" and read["MASTER_PORT"] == str(20000 + 41234 % 20000)
    assert read_slurm({**env, "RANK": "0"}) == {} and read_slurm({}) == {}


def test_bad_targets_are_explained() -> None:
    for target, words in [
        ("probe", "write file.py:function"),
        ("none.py:f", "does not exist"),
        ("json:nope", "no function"),
    ]:
        with pytest.raises(SystemExit, match=words):
            load(target)
    assert load("json:dumps") is json.dumps


def test_values_become_json() -> None:
    import torch

    assert plain({"a": (torch.ones(2), {1})}) == {"a": [[1.0, 1.0], [1]]} and plain(object).startswith("<class")
