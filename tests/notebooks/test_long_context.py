"""What notebook 13 claims shows in its output: the lecture's numbers, NaN rows, bytes, torch's own ring."""

import re

import pytest

pytestmark = [pytest.mark.heavy, pytest.mark.xdist_group("notebooks")]
NAME = "13_long_context"


def test_13_two_blocks_and_their_softmax(ran):
    text = ran(NAME).text()
    assert "blocks: 2 and 5; sum 7, mean 3.5; right: 4" in text
    assert "m = 1.386, old sums times 0.25: l = 1.5, u = 6; output so far 4" in text
    assert "m = 1.386, old sums times 1: l = 1.5, u = 6; output so far 4" in text
    gaps = dict(re.findall(r"b = +([\d.]+): +(\S+)   logaddexp", text))
    assert gaps["88.0"] == "88.000" and gaps["89.0"] == gaps["100.0"] == "inf"
    rows = dict(re.findall(r"(causal|window of 2|left padding of 4): (\d) of 8 rows are NaN", text))
    assert rows == {"causal": "0", "window of 2": "5", "left padding of 4": "8"}


def test_13_bytes_held_and_bytes_sent(ran):
    text = ran(NAME).text()
    powers = {name: float(power) for name, power in re.findall(r"^ *(\S.*): .* to the power ([\d.]+)$", text, re.M)}
    assert powers["all scores"] == pytest.approx(2, abs=0.05)
    assert powers["in blocks of 64"] < 1.1 and powers["ring of 4, a piece at once"] > 1.7
    rounds = re.findall(r"p = (\d): rank 0 sent (\d) blocks, +(\d+) bytes; predicted +(\d+);", text)
    assert [(int(p) - 1, sent) for p, _, sent, _ in rounds] == [(int(n), guess) for _, n, _, guess in rounds]
    assert len(rounds) == 4 and rounds[3][2] == "49152"
    swaps = re.findall(r"all-to-all ([\d.]+) \(predicted ([\d.]+)\), ring (\d)", text)
    assert [(float(a), float(b)) for a, b, _ in swaps] == [(float(b), float(b)) for _, b, _ in swaps]
    assert [ring for _, _, ring in swaps] == ["0", "2", "4", "6"]


def test_13_agrees_with_torch_and_its_ring(ran):
    text = ran(NAME).text()
    errors = [float(error) for error in re.findall(r"off by (\de[+-]\d+)", text)]
    assert len(errors) >= 12 and max(errors) < 1e-4
    passes = re.findall(r"p = (\d): (\d) blocks forward, (\d) backward", text)
    assert passes == [(str(p), str(p - 1), str(2 * p - 1)) for p in (2, 3, 4)]
    assert "does not have a sharding strategy registered" in text


def test_13_balance_positions_labels(ran):
    text = ran(NAME).text()
    assert "in_order: scores by rank [136, 392, 648, 904], the busiest has 1.74 times its share" in text
    assert "zigzag: scores by rank [520, 520, 520, 520], the busiest has 1.00 times its share" in text
    assert float(re.search(r"between the pieces: off by ([\d.]+)", text)[1]) > 1
    assert "shift, then cut: [[1, 2, 3, 4], [5, 6, 7, -100]]" in text
    assert "gradient divided by a rank's own count: 5 times the right one" in text


def test_13_transfers_hide_behind_products(ran):
    rows = re.findall(r"transfer started .*: ((?:\d+ \(\d+\)(?:, )?)+)", ran(NAME).text())
    times = [[int(ms) for ms in re.findall(r"(\d+) \(", row)] for row in rows]
    guesses = [[int(ms) for ms in re.findall(r"\((\d+)\)", row)] for row in rows]
    assert guesses == [[80, 110, 140, 170, 200], [80, 80, 80, 110, 140]]
    assert all(t >= g - 1 for row, guess in zip(times, guesses, strict=True) for t, g in zip(row, guess, strict=True))
    assert ran(NAME).pictures() == 6
