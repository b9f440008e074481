"""What notebook 11 claims shows in its output, and its pictures show what they are given."""

from __future__ import annotations

import re

import pytest

from utils.pictures import draw_roofline, draw_visibility

pytestmark = [pytest.mark.heavy, pytest.mark.xdist_group("notebooks")]

NAME = "11_inference"


def numbers(text: str) -> list[int]:
    return [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", text)]


def test_11_shapes_and_llama(ran):
    text = ran(NAME).text()
    assert "3 requests; one request [7, 1024]; one token [1024]" in text
    for name, shape in {
        "embedded tokens": [2, 16, 64],
        "queries": [2, 4, 16, 16],
        "keys, and values": [2, 2, 16, 16],
        "scores Q K^T": [2, 4, 16, 16],
        "inside the feed-forward": [2, 16, 176],
        "logits": [2, 16, 256],
    }.items():
        assert re.search(rf"^ *{re.escape(name)}: {re.escape(str(shape))}$", text, re.MULTILINE)
    off = re.search(r"largest difference to transformers' Llama: (\S+), with logits up to (\d+)", text)
    assert off is None or (float(off[1]) < 1e-4 and int(off[2]) > 1)
    assert off or "transformers is not installed here" in text


def test_11_learns_with_the_shift_and_copies_without(ran):
    text = ran(NAME).text()
    shifted = [float(x) for x in re.search(r"with the shift: (.*)", text)[1].replace("... ", "").split()]
    copied = [float(x) for x in re.search(r"^without: +(.*)", text, re.MULTILINE)[1].replace("... ", "").split()]
    assert shifted[0] > 4.5 > 2.7 > shifted[-1] > 1
    assert copied[-1] < 0.5 and copied[0] > 3


def test_11_a_cache_gives_the_same_tokens_for_less_work(ran):
    text = ran(NAME).text()
    assert "the same tokens: True" in text
    plain = numbers(re.search(r"FLOPs of the plain steps: (.*)", text)[1])
    cached = numbers(re.search(r"FLOPs of the cached steps: (.*)", text)[1])
    assert plain[0] == cached[0] and plain[1] > 1.5 * plain[0] and cached[1] < cached[0] / 40
    assert float(re.search(r"([\d.]+) times less work", text)[1]) > 20
    for layer in (0, 1):
        assert f"layer {layer}: 3 queries, 3 keys" in text
        assert f"layer {layer}: 1 query, 4 keys" in text


def test_11_bytes_of_the_cache_are_predicted(ran):
    text = ran(NAME).text()
    rows = re.findall(r"K = \d: predicted ([\d,]+) bytes, held ([\d,]+)", text)
    assert len(rows) == 3 and all(predicted == held for predicted, held in rows)
    assert "320 KiB a token, 2.50 GiB for one request" in text
    assert "with 64 KV heads: 20 GiB" in text


def test_11_the_plain_step_grows_and_prefill_is_denser_than_decode(ran):
    text = ran(NAME).text()
    rows = re.findall(r"context +(\d+): +([\d.]+) ms plain, +([\d.]+) ms cached", text)
    assert [int(context) for context, *_ in rows] == [64, 128, 256, 512, 1024]
    found = re.findall(r"(?:prefill|decode), +(\S = \d+): +([\d.]+)", text)
    intensity = {label: float(x) for label, x in found}
    assert 0.4 < intensity["B = 1"] < 0.6
    assert intensity["B = 1"] < intensity["B = 4"] < intensity["B = 16"] < 8
    assert 7 < intensity["S = 16"] < intensity["S = 64"] < intensity["S = 256"]


def test_11_masks_and_positions(ran):
    text = ran(NAME).text()
    square, right = re.search(r"largest error of the logits: A (\S+), B (\S+)", text).groups()
    assert float(square) > 0.5 > 1e-3 > float(right)
    off = {name: float(x) for name, x in re.findall(r"\((\w)\) .*: positions .*, logits off by (\S+)", text)}
    assert off["a"] < 1e-4 and off["b"] < 1e-4 and off["c"] > 0.01
    assert float(re.search(r"own positions, pads seen: logits off by (\S+)", text)[1]) > 0.01
    assert "queries [0, 1, 2, 3, 4, 5] miss keys, and [0, 1, 2] see nothing at all" in text


def test_11_sampling(ran):
    text = ran(NAME).text()
    kept = re.findall(r"p = (\S+): the first (\d) stay", text)
    assert kept == [("0.7", "2"), ("0.5", "1"), ("0.001", "1"), ("1", "4")]
    assert len(re.findall(r"^T = \S+: b['\"]", text, re.MULTILINE)) == 3
    assert ran(NAME).pictures() == 5


def test_the_picture_of_a_mask_shows_every_pair_and_marks_padding():
    from matplotlib.colors import to_hex

    from utils.pictures import rank_color

    mask = [[True, False, True], [False, True, True]]
    ax = draw_visibility(mask, [3, 4], [-1, 0, 3], cached=2)
    seen = [[to_hex(patch.get_facecolor()) == rank_color(0).lower() for patch in ax.patches][i : i + 3] for i in (0, 3)]
    assert seen == mask
    assert [label.get_text() for label in ax.get_xticklabels()] == ["–", "0", "3"]
    assert list(ax.lines[0].get_xdata()) == [2, 2]
    with pytest.raises(ValueError, match="must be 2 x 3"):
        draw_visibility([[True, True]], [3, 4], [-1, 0, 3])


def test_the_roofline_has_its_ridge_where_peak_and_bandwidth_meet():
    ax = draw_roofline(50e9, 10e9, {"decode": [("B = 1", 0.5, 4e9)], "prefill": [("S = 64", 60, 45e9)]})
    roof = ax.lines[0]
    assert roof.get_xdata()[1] == 5 and list(roof.get_ydata()[1:]) == [50, 50]
    assert roof.get_ydata()[0] == pytest.approx(10 * roof.get_xdata()[0])
    assert {text.get_text() for text in ax.texts} == {"B = 1", "S = 64"}
    with pytest.raises(ValueError, match="above 0"):
        draw_roofline(50e9, 0, {})
