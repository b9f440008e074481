"""What notebook 15 claims shows in its output, and its pictures draw what they are given."""

import re

import pytest

from utils.engine import ModelMissing, model_path
from utils.pictures.quantisation import draw_error_against_bits, draw_number_levels

NOTEBOOK = "15_end_to_end"


@pytest.fixture
def text(ran):
    try:
        model_path()
    except ModelMissing as missing:
        pytest.skip(str(missing))
    return ran(NOTEBOOK).text()


def numbers(pattern, text):
    return [float(number) for number in re.findall(pattern, text)]


@pytest.mark.heavy
@pytest.mark.xdist_group("notebooks")
def test_15_errors_halve_with_each_bit_and_groups_gain_most_where_bits_are_few(text):
    for largest, half in re.findall(r"largest error ([\d.]+), half a step ([\d.]+)", text):
        assert float(largest) <= float(half) + 1e-3
    rows = {name: numbers(r"bits ([\d.]+)", row) for name, row in
            re.findall(r"^ *(per tensor|per channel|groups of 32): (2 bits.*)$", text, re.MULTILINE)}  # fmt: skip
    assert all(1.8 < a / b < 2.6 for a, b in zip(rows["groups of 32"][1:], rows["groups of 32"][2:], strict=False))
    fine, middle, coarse = (rows[name] for name in ("groups of 32", "per channel", "per tensor"))
    assert all(g < c < t for g, c, t in zip(fine, middle, coarse, strict=True))
    (small,) = numbers(r"per tensor: relative error of row 0 ([\d.]+)", text)
    (channel,) = numbers(r"per channel: relative error of row 0 ([\d.]+)", text)
    assert small > 20 * channel


@pytest.mark.heavy
@pytest.mark.xdist_group("notebooks")
def test_15_the_file_and_the_model_are_what_they_are_said_to_be(text):
    assert "34 bytes for 32 weights, 8.5 bits each" in text and "20 bytes for 32 weights, 5.0 bits each" in text
    assert "the same bits as the gguf library's: True" in text
    predicted, found = (float(n) for n in re.search(r"predicted (\d+) MB.*has (\d+) MB", text).groups())
    assert predicted < found < 1.05 * predicted
    assert re.search(r"^ *[\d.]+% ' Paris'$", text, re.MULTILINE)
    assert numbers(r"largest difference to the engine's logits: ([\de.-]+),", text)[0] < 1e-3


@pytest.mark.heavy
@pytest.mark.xdist_group("notebooks")
def test_15_what_bits_cost_on_real_text(text):
    exact, int8, group, channel = numbers(r": perplexity ([\d.]+)", text)[:4]
    assert abs(int8 / exact - 1) < 0.01 < group / exact - 1 < channel / exact - 1
    assert "nearest [[1, 1]], calibrated [[1, 0]]" in text
    row = r"outputs off by ([\d.]+) \(nearest\), ([\d.]+) \(calibrated\); weights off by ([\d.]+), ([\d.]+)"
    pairs = re.findall(row, text)
    assert len(pairs) == 8
    for nearest, calibrated, weights, moved in pairs:
        assert float(calibrated) < float(nearest) and float(moved) > float(weights)
    assert numbers(r"held-out text: ([\d.]+) times", text)[0] < 0.85
    nearest, calibrated = numbers(r"q, k, v in 4 bits, \w+: predictions ([\d.]+) nats", text)
    assert calibrated < 0.9 * nearest
    moved, same = numbers(r"logits move by ([\d.]+)", text)[0], numbers(r"the same in ([\d.]+)% of the places", text)[0]
    assert "68 in place of 256" in text and moved < 0.05 and same > 95
    assert numbers(r"one scale for all tokens and heads: ([\d.]+)", text)[0] > moved


@pytest.mark.heavy
@pytest.mark.xdist_group("notebooks")
def test_15_three_ranks_say_what_one_says_and_a_server_answers(ran, text):
    assert "The capital of France is| Paris" in text
    assert "the same on one rank and on three: True" in text
    alone, third = re.search(r"(\d+) MiB alone, (\d+) MiB of three", text).groups()
    assert 2.9 < int(alone) / int(third) < 3.1
    assert "1 + 2 x 30 = 61 a step: True" in text
    assert "two ranks: 9 heads and 3 KV heads do not divide over 2 ranks" in text
    answers = re.findall(r"^model: (.+?)   \[(\d+) pieces\]$", text, re.MULTILINE | re.DOTALL)
    assert len(answers) == 2 and all(int(pieces) > 3 for _, pieces in answers)
    assert "the server has ended: True" in text and ran(NOTEBOOK).pictures() == 2


def test_pictures_of_levels_and_of_errors():
    ax = draw_number_levels([0.1, 0.9], {"1 bit": [0.0, 1.0], "2 bits": [0.0, 0.5, 1.0]})
    assert [label.get_text() for label in ax.get_yticklabels()] == ["numbers", "1 bit", "2 bits"]
    with pytest.raises(ValueError, match="0 numbers and 1 kinds of levels"):
        draw_number_levels([], {"1 bit": [0.0]})
    ax = draw_error_against_bits([4, 8], {"a": [0.2, 0.01], "b": [0.1, 0.005]})
    assert len(ax.lines) == 2 and ax.get_yscale() == "log"
    with pytest.raises(ValueError, match="b has 1 errors for 2 numbers of bits"):
        draw_error_against_bits([4, 8], {"b": [0.1]})
