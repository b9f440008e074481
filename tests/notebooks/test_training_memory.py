"""Notebook 05 shows what its text says: bytes to the byte, what bf16 loses, who agrees, what checkpointing costs."""

import re

import pytest

NAME = "05_training_memory"
pytestmark = [pytest.mark.heavy, pytest.mark.xdist_group("notebooks")]


@pytest.fixture
def text(ran):
    return ran(NAME).text()


def numbers(pattern, text):
    return [tuple(float(part) for part in match.groups()) for match in re.finditer(pattern, text, re.MULTILINE)]


def test_the_ledger_is_right_to_the_byte(text):
    rows = numbers(r"^step \d, +\w+: alive +(\d+), .*predicted +(\d+)$", text)
    assert len(rows) == 6 and all(alive == predicted for alive, predicted in rows)
    alive = dict(re.findall(r"^step 2, +(\w+): alive +(\d+)", text, re.MULTILINE))
    assert int(alive["forward"]) == max(map(int, alive.values()))


def test_bf16_stands_still_where_fp32_moves(text):
    assert "fp32: 0.8000" in text and "bf16: 1.0000" in text and "bf16 copy of an fp32 master: 0.8008" in text
    shares = [share for (share,) in numbers(r"^lr .*: +([\d.]+)% of the bf16 weights", text)]
    assert len(shares) == 4 and shares == sorted(shares, reverse=True) and shares[2] < 60 and shares[0] > 60
    found = re.findall(r"^ *(\S.*): +(\d+) of 576 LayerNorm", text, re.MULTILINE)
    moved = {kind.strip(): int(count) for kind, count in found}
    assert moved["bf16"] == 0 and moved["fp32"] > 500 and moved["bf16 with fp32 masters"] > 500
    assert "summed in bf16 256, in fp32 1024" in text


def test_fp16_loses_small_gradients_and_overflows_with_too_large_a_factor(text):
    rows = numbers(r"^factor 2\*\*(\d+) *: +([\d.]+)% of the gradients are 0, (\d+) are inf", text)
    lost, over = [row[1] for row in rows], [row[2] for row in rows]
    assert lost[0] > 3 and lost == sorted(lost, reverse=True) and over[0] == 0 and over[-1] > 0


def test_ranks_agree_for_four_bytes_a_step(text):
    alone, together = text.split("they decide together")[0], text.split("they decide together")[1]
    assert "rank 0: scale 1024, weight [-0.4, -0.8]; sent 0 bytes" in alone
    assert "rank 1: scale 512, weight [-0.3, -0.6]; sent 0 bytes" in alone
    for rank in (0, 1):
        assert f"rank {rank}: scale 512, weight [-0.3, -0.6]; sent 16 bytes in 4 steps" in together
    assert text.count("torch's scale and weight agree") == 2 and "DIFFER" not in text


def test_activations_follow_the_formula(text):
    rows = numbers(r"^ +(\d+) +(\d+) +(\d+) +([\d.]+)%$", text)
    assert len(rows) == 7 and all(0 <= off < 2 for *_, off in rows)
    assert "fused attention: S = 512 keeps" in text


def test_checkpointing_by_hand_is_torchs(text):
    differences = numbers(r"largest difference of a gradient from the plain step ([\d.e+-]+)", text)
    assert len(differences) == 2 and all(off < 1e-6 for (off,) in differences)
    found = re.findall(r"^ *(plain|by hand|torch's own): peak +([\d.]+) MiB, FLOPs x ([\d.]+)", text, re.MULTILINE)
    rows = {name: (float(peak), float(flops)) for name, peak, flops in found}
    assert rows["by hand"][0] < rows["plain"][0] / 4 and rows["torch's own"][0] < rows["plain"][0] / 4
    assert rows["by hand"][1] == rows["torch's own"][1] == pytest.approx(4 / 3, abs=1e-3)
    peaks = numbers(r"^segments of +(\d+): peak +([\d.]+) MiB, borders \+ insides +([\d.]+)", text)
    assert len(peaks) == 4 and all(0 < peak - guess < 0.6 for _, peak, guess in peaks)
    assert "lowest peak at k = 1" in text


def test_a_mask_drawn_anew_spoils_gradients_and_shows_only_with_dropout(text):
    (wrong,), (right,) = numbers(r"relative error of the gradients ([\d.]+)", text)
    assert wrong > 0.2 and right < 1e-3
    assert re.search(r"without dropout nothing shows: largest difference 0\.0e\+00", text)


def test_pictures(ran):
    assert ran(NAME).pictures() == 5
