"""What notebook 12 claims shows in its output: queues, texts, throughput, stalls, pages, prefixes, two ranks."""

import re

import pytest

pytestmark = [pytest.mark.heavy, pytest.mark.xdist_group("notebooks")]


def test_12_the_four_requests(ran):
    text = ran("12_serving").text()
    assert "D: 800 tokens,  0 in the cache; to compute next: 800" in text
    assert "E:  70 tokens, 69 in the cache; to compute next: 1\n" in text
    assert "F:  57 tokens, 56 in the cache; to compute next: none" in text
    assert "G:   3 tokens,  0 in the cache; to compute next: 3" in text


def test_12_texts_are_those_of_each_request_alone(ran):
    text = ran("12_serving").text()
    same = re.findall(r"texts as if served alone: (\d+) of (\d+)", text)
    assert same == [("10", "10"), ("5", "5")]
    assert ran("12_serving").pictures() == 4


def test_12_continuous_batching_needs_less_than_half_the_steps(ran):
    """Steps, and not seconds: another program on the machine must not change the verdict."""
    text = ran("12_serving").text()
    steps = re.search(r"times the throughput, in ([\d.]+) times fewer steps", text)[1]
    assert float(steps) >= 2
    assert "96 requests, 1818 tokens to generate" in text
    by_places = [int(steps) for _, steps in re.findall(r"^ +(\d+) places .*, (\d+) steps,", text, re.MULTILINE)]
    assert len(by_places) == 5 and by_places[0] > by_places[-1]


def test_12_by_hand_and_pages(ran):
    text = ran("12_serving").text()
    assert "Latency(ttft=3, tpot=2.3333333333333335, gaps=(1, 1, 5))" in text
    pages = re.findall(r"at most (\d+) requests in a step; (\d+)% of what they reserve is never written", text)
    assert pages[0] == ("8", "81") and int(pages[1][0]) > 8 and pages[1][1] == "12"
    fewer = re.search(r"pages of 16 need ([\d.]+) times fewer steps than static batching", text)[1]
    assert float(fewer) >= 2
    known, total = map(int, re.search(r"(\d+) of (\d+) prompt tokens .* are known beginnings", text).groups())
    assert total == 2734 and 0.35 < known / total < 0.45  # the text differs a little between Python versions
    layers = [float(x) for x in re.search(r"by layer: \['([\d.]+)', '([\d.]+)', '([\d.]+)'\]", text).groups()]
    assert layers[0] == 0 and min(layers[1:]) > 0.01


def test_12_the_cache_crosses_once(ran):
    text = ran("12_serving").text()
    assert "rank 0 sent 537,608 bytes; the cache has 537,600, the first token 8" in text
    assert len(re.findall(r"(?:whole prompts|chunks of 32): longest gap of the four +[\d.]+ ms", text)) == 2
