"""What notebook 14 claims shows in its output, and its pictures draw what they are given."""

import re

import pytest

from utils.pictures import draw_dispatch, draw_load, draw_matrix_of_rows

pytestmark = [pytest.mark.heavy, pytest.mark.xdist_group("notebooks")]


def test_14_shows_the_lectures_token_and_both_conventions(ran):
    text = ran("14_moe").text()
    assert "experts [7, 42]: probabilities [0.3, 0.2], sum 0.50" in text
    assert "divided by their sum: [0.6, 0.4]" in text
    assert "0.6 E7(x) + 0.4 E42(x): True" in text
    assert "softmax over the two best scores only: [0.6, 0.4]" in text


def test_14_parameters_grow_with_experts_and_work_with_k(ran):
    text = ran("14_moe").text()
    rows = re.findall(r"top (\d): +(\d+) parameters; FLOPs a token (\d+), predicted (\d+)", text)
    assert len(rows) == 3 and all(counted == predicted for _, _, counted, predicted in rows)
    (_, one, one_flops, _), _, (_, many, many_flops, _) = rows
    assert int(many) == 64 * int(one) and int(many_flops) < 2.5 * int(one_flops)


def test_14_a_collapsed_router_drops_and_the_balance_loss_mends_it(ran):
    text = ran("14_moe").text()
    assert "all to one: 84.4% dropped" in text and "predicted for all to one: 84.4%" in text
    numbers = re.findall(r"(dropped|balance|loss): ([\d.]+) at first, ([\d.]+) at the end", text)
    assert [name for name, _, _ in numbers] == ["dropped", "balance", "loss"] * 2
    without, balanced = ({name: (float(a), float(b)) for name, a, b in half} for half in (numbers[:3], numbers[3:]))
    assert without["dropped"][0] == balanced["dropped"][0] == 0.84
    assert without["dropped"][1] > 0.3 > 0.2 > balanced["dropped"][1]
    assert balanced["balance"][0] > 5 and balanced["balance"][1] < 1.15 < without["balance"][1]
    assert without["loss"][0] > 5 and balanced["loss"][1] < 3


def test_14_tokens_travel_as_predicted(ran):
    text = ran("14_moe").text()
    assert "equal to one process: True · collectives of each rank: [3, 3, 3, 3]" in text
    sent = re.findall(r"^rank \d: sent (\d+) bytes, predicted (\d+)$", text, re.MULTILINE)
    assert len(sent) == 4 and all(measured == predicted for measured, predicted in sent)
    moved = re.findall(r"in bf16 +([\d.]+)% of the tokens change their expert", text)
    assert float(moved[0]) < 1 < 20 < float(moved[2])
    assert "all the identity: largest error 0.00" in text
    assert float(re.search(r"all different +: largest error ([\d.]+)", text)[1]) > 1


def test_14_whose_gradient_is_complete(ran):
    text = ran("14_moe").text()
    assert text.count("its expert's gradient is that of all tokens: True; its router's: False") == 2
    assert "the two routers' gradients add up to it: True" in text


def test_14_the_crowded_rank_computes_longest(ran):
    text = ran("14_moe").text()
    rows = re.findall(r"computes ([\d.]+) times as long, predicted ([\d.]+)", text)
    assert [float(predicted) for _, predicted in rows] == [1.0, 1.98, 4.0]
    assert float(rows[2][0]) > 1.5 and ran("14_moe").pictures() == 4


def test_the_picture_of_a_dispatch_shows_every_token_twice():
    ax = draw_dispatch([[0, 1, 0], [], [0], [1]], 4, capacity=2)
    shown = [text.get_text() for text in ax.texts]
    assert sum(text in ("0", "1", "2") for text in shown) == 2 * 5
    assert {"rank 0", "rank 2", "rank 3", "expert 3\non rank 3"} <= set(shown) and "rank 1" not in shown
    assert sum(patch.get_linestyle() == "--" for patch in ax.patches) == 1
    with pytest.raises(ValueError, match="no expert 5"):
        draw_dispatch([[5]], 2)
    with pytest.raises(ValueError, match="3 experts do not divide evenly over 2 ranks"):
        draw_dispatch([[0], [1]], 3)


def test_pictures_of_load_and_of_rows():
    ax = draw_load([[1.0, 0.0], [0.5, 0.5]])
    assert len(ax.collections) == 2
    with pytest.raises(ValueError, match="add up to 1"):
        draw_load([[0.5, 0.1]])
    ax = draw_matrix_of_rows([[3, 1], [0, 4]])
    assert [text.get_text() for text in ax.texts] == ["3", "1", "0", "4"]
    with pytest.raises(ValueError, match="2 ranks send to 2 ranks"):
        draw_matrix_of_rows([[1], [2]])
