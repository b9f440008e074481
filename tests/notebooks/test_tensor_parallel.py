"""What notebooks 08 and 10 claim shows in their output, and their formulas hold for sizes that they do not use."""

import re

import pytest

from utils.pictures import draw_split_product

pytestmark = [pytest.mark.heavy, pytest.mark.xdist_group("notebooks")]


def test_08_shows_the_lectures_example_and_where_the_gradient_goes(ran):
    text = ran("08_tensor_parallel").text()
    assert "by_columns: rank 0 computes [[5.0]], after the collective it has [[5.0, 7.0]]" in text
    assert "by_rows: rank 0 computes [[1.0, 1.0]], after the collective it has [[5.0, 7.0]]" in text
    assert "by_rows: rank 1 computes [[4.0, 6.0]], after the collective it has [[5.0, 7.0]]" in text
    right, wrong = re.findall(r"Y off by ([\d.]+)  dW1 off by ([\d.]+)  dW2 off by ([\d.]+)  dX off by ([\d.]+)", text)
    assert [float(x) for x in right] == [0] * 4
    assert [float(x) for x in wrong[:3]] == [0] * 3 and float(wrong[3]) > 0.2


def test_08_counts_what_is_sent(ran):
    text = ran("08_tensor_parallel").text()
    sent = dict(re.findall(r"(\w+_step): +(\d+) bytes .*same Y and dX: True", text))
    assert sent == {"pair_step": "576", "gathering_step": "1152", "torch_step": "576"}
    assert "predicted: two all-reduces 576 bytes; with the gather 1152" in text
    assert "1365 times as many; predicted 1365" in text
    losses = re.findall(r"(?:one process|loss_by_\w+): (\d+\.\d{4})", text)
    assert len(losses) == 3 and len(set(losses)) == 1
    assert len(re.findall(r"sequence parallel (?:False|True| True): 2048 bytes", text)) == 2
    assert "gradient of the norm's weight is the same: True" in text


def test_08_trains_like_one_process(ran):
    text = ran("08_tensor_parallel").text()
    rows = re.findall(r"^(?:one process|two ranks): +((?:\d\.\d\d ?){14})$", text, re.MULTILINE)
    assert len(rows) == 3 and len(set(rows)) == 1
    losses = [float(loss) for loss in rows[0].split()]
    assert losses[0] > 5 > 4.2 > sum(losses[-3:]) / 3
    assert re.findall(r"  (\d+) all-reduces a step, (\d+) bytes", text) == [("12", "196608"), ("8", "131072")]
    assert "predicted: 8 all-reduces a step, 8 (p-1)/p B S H L x 4 = 131072 bytes" in text
    assert re.search(r"largest difference of a loss: \de-0[5-9]", text)


def test_08_activations_and_pictures(ran):
    text = ran("08_tensor_parallel").text()
    inside = re.findall(r"p = \d: weights ([\d.]+); activations inside ([\d.]+), around ([\d.]+)", text)
    assert [(float(w), float(a)) for w, a, _ in inside] == [(1, 8), (0.5, 4), (0.25, 2), (0.125, 1)]
    assert len({around for _, _, around in inside}) == 1
    assert ran("08_tensor_parallel").pictures() == 3


def test_10_formulas_are_what_torch_counts(ran):
    text = ran("10_transformer_flops").text()
    for name in ("query", "key", "value", "output"):
        by_hand, counted = re.search(rf"{name} projection .*  ([\d,]+)  ([\d,]+)$", text, re.MULTILINE).groups()
        assert by_hand == counted
    inside = re.search(r"attention itself: ([\d,]+), counted ([\d,]+)", text)
    assert inside[1] == inside[2]
    totals = [int(n.replace(",", "")) for n in re.findall(r"^(?:counted  |8BSH).* ([\d,]+)$", text, re.MULTILINE)]
    assert totals[0] == totals[1] != totals[2]
    gated = re.findall(r"gated feed-forward, F = +\d+: counted ([\d,]+), 6BSHF = ([\d,]+)", text)
    assert len(gated) == 3 and all(counted == formula for counted, formula in gated)
    shares = re.findall(r"attention +([\d.]+)%, predicted +([\d.]+)%", text)
    assert len(shares) == 9 and all(counted == predicted for counted, predicted in shares)


def test_10_training_and_its_limits(ran):
    text = ran("10_transformer_flops").text()
    rows = re.findall(r"^ *(\S.*?) +\S+e[+-]\d+ +2\.00 +\S+ +([\d.]+) +1\.0000$", text, re.MULTILINE)
    ratios = {name: float(ratio) for name, ratio in rows}
    assert len(ratios) == 6
    assert ratios["course, S = 1024"] < 0.6 and 0.95 < ratios["GPT-3 175B"] < 1 and ratios["large vocabulary"] > 1.5
    assert len(re.findall(r"ratio (?:0\.99|1\.0[01])\d", text)) == 5 and "ratio 1.047" in text
    assert "with recomputation: 34.7 days" in text and "33.9 days" in text
    predicted, counted = re.search(r"^predicted ([\d,]+), counted ([\d,]+)$", text, re.MULTILINE).groups()
    assert predicted == counted
    assert text.count("same result: True") == 3
    assert ran("10_transformer_flops").pictures() == 2


@pytest.mark.parametrize("by", ["columns", "rows"])
def test_the_picture_of_a_split_product_shows_every_number(by):
    ax = draw_split_product([[1, 2]], [[1, 1], [2, 3]], by)
    shown = {text.get_text() for text in ax.texts}
    assert {"1", "2", "3", "5", "7"} <= shown
    assert ({"4", "6"} <= shown) == (by == "rows")


def test_the_picture_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match='"columns" or by "rows"'):
        draw_split_product([[1]], [[1]], by="blocks")
    with pytest.raises(ValueError, match="x has 1 columns and the weight 2 rows"):
        draw_split_product([[1]], [[1], [2]], by="rows")
