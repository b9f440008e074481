"""utils.mesh: where ranks are, which part of a model they hold, and that the parts together are the whole model."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from utils import launch
from utils.mesh import (
    AXES,
    Mesh,
    Placement,
    ShardedStage,
    axis_of,
    bytes_per_axis,
    draw_mesh,
    run_gpipe,
    seconds_per_axis,
    shard_of,
)
from utils.models import Transformer, TransformerConfig

TIED = TransformerConfig(vocab_size=16, hidden=8, layers=2, heads=4, kv_heads=2, ffn=12, max_len=6)
GATED = TransformerConfig(vocab_size=16, hidden=8, layers=2, heads=2, gated=True, tied=False, bias=False, max_len=6)


def whole(config):
    torch.manual_seed(4)
    model = Transformer(config).double()
    with torch.no_grad():
        for x in model.parameters():
            x.add_(0.3 * torch.randn_like(x))
    return model


def batch(rows=4, length=6):
    tokens = torch.randint(16, (rows, length + 1), generator=torch.Generator().manual_seed(1))
    return tokens[:, :-1], tokens[:, 1:]


def places():
    mesh = Mesh(dp=2, pp=1, tp=2)
    return {axis: (mesh.coordinate(axis), mesh.size(axis), mesh.ranks(axis)) for axis in AXES}


def test_coordinates_and_groups_are_row_major():
    values = launch(places, ranks=4).values
    assert values[1] == {"dp": (0, 2, [1, 3]), "pp": (0, 1, [1]), "tp": (1, 2, [0, 1])}
    assert values[2] == {"dp": (1, 2, [0, 2]), "pp": (0, 1, [2]), "tp": (0, 2, [2, 3])}


def refusals():
    said = []
    for make in (
        lambda: Mesh(dp=3),
        lambda: ShardedStage(whole(TransformerConfig(layers=3)), Mesh(pp=2)),
        lambda: ShardedStage(whole(TransformerConfig(heads=1)), Mesh(tp=2)),
        lambda: ShardedStage(whole(TransformerConfig(dropout=0.1)), Mesh(tp=2)),
    ):
        try:
            make()
        except ValueError as error:
            said.append(str(error))
    return said


def test_what_does_not_divide_is_refused_with_the_numbers():
    product, layers, heads, dropout = launch(refusals, ranks=2).values[0]
    assert "dp 3 x pp 1 x tp 1 = 3 ranks; there are 2" in product
    assert "3 layers do not divide over pp = 2" in layers and "1 heads do not divide over tp = 2" in heads
    assert "dropout" in dropout


def one_backward(config, layout, tokens, targets):
    """Gradients brought together by hand, as whole tensors by name, and the logits' loss."""
    mesh = Mesh(*layout)
    stage = ShardedStage(whole(config), mesh)
    parts, wanted = tokens.chunk(2), targets.chunk(2)
    losses = run_gpipe(
        stage, mesh, parts, lambda k, y: F.cross_entropy(y.flatten(0, 1), wanted[k].flatten(), reduction="sum")
    )
    result = {}
    for name, x in stage.named_parameters():
        its, grad = stage.placements[name], x.grad.contiguous()
        if its.kind == "sharded":
            pieces = [torch.empty_like(grad) for _ in mesh.ranks("tp")]
            dist.all_gather(pieces, grad, group=mesh.group("tp"))
            grad = torch.cat(pieces, its.dim)
        elif its.kind == "partial":
            dist.all_reduce(grad, group=mesh.group("tp"))
        result[name] = grad
    shapes = {name: its.local_shape(layout[2]) == tuple(stage.get_parameter(name).shape)
              for name, its in stage.placements.items()}  # fmt: skip
    tied = [name for name, its in stage.placements.items() if its.tied]
    return {"losses": losses, "grads": result, "shapes": shapes, "tied": tied, "last": stage.last}


@pytest.mark.parametrize(("config", "layout"), [
    (TIED, (1, 1, 1)), (TIED, (1, 2, 2)), (TIED, (1, 1, 4)), (GATED, (1, 2, 1)), (GATED, (1, 1, 2)),
])  # fmt: skip
def test_parts_together_have_the_gradients_of_the_whole(config, layout):
    tokens, targets = batch()
    values = launch(one_backward, config, layout, tokens, targets, ranks=layout[0] * layout[1] * layout[2]).values
    model = whole(config)
    loss = model.loss(tokens, targets, reduction="sum")
    loss.backward()
    got: dict[str, torch.Tensor] = {}
    for value in values[:: layout[2]]:  # tp rank 0 of each stage
        for name, grad in value["grads"].items():
            added = name in got and name in value["tied"]
            got[name] = got[name] + grad if added else got.get(name, grad)
    for name, x in model.named_parameters():
        torch.testing.assert_close(got[name], x.grad, rtol=1e-9, atol=1e-9)
    assert all(all(value["shapes"].values()) for value in values)
    for value in values:
        assert sum(value["losses"]) == (pytest.approx(loss.item()) if value["last"] else 0)


def test_fewer_kv_heads_than_ranks_make_partial_gradients():
    placements = launch(lambda: ShardedStage(whole(TIED), Mesh(tp=4)).placements, ranks=4).values[0]
    assert placements["blocks.0.attention.k_proj.weight"].kind == "partial"
    assert placements["blocks.0.attention.q_proj.weight"].kind == "sharded"
    assert placements["blocks.0.attention.o_proj.bias"].kind == "replicated"


def test_placements_check_themselves():
    assert Placement("sharded", (8, 4), dim=1).local_shape(2) == (8, 2)
    with pytest.raises(ValueError, match="only sharded has a dim"):
        Placement("replicated", (8,), dim=0)
    with pytest.raises(ValueError, match="does not divide into 2 along dim 0"):
        shard_of(torch.zeros(5, 2), 0, 0, 2)


@pytest.mark.parametrize(("ranks", "shape", "axis"), [
    ([0, 4], (2, 2, 2), "dp"), ([1, 3], (2, 2, 2), "pp"), ([6, 7], (2, 2, 2), "tp"), ([0, 3], (2, 2, 2), "other"),
    (range(8), (2, 2, 2), "world"), (range(4), (4, 1, 1), "dp"), ([2, 0], (1, 3, 1), "pp"),
])  # fmt: skip
def test_axis_of_a_group(ranks, shape, axis):
    assert axis_of(ranks, shape) == axis


def talk():
    mesh = Mesh(dp=2, tp=2)
    dist.all_reduce(torch.zeros(10), group=mesh.group("dp"))
    other = mesh.ranks("tp")[1 - mesh.coordinate("tp")]
    works = [dist.isend(torch.zeros(3), other), dist.irecv(torch.zeros(3), other)]  # in the world's group
    for work in works:
        work.wait()
    dist.all_reduce(torch.zeros(4))


def test_bytes_and_seconds_by_axis():
    trace = launch(talk, ranks=4).trace
    assert bytes_per_axis(trace, 0, (2, 1, 2)) == {"dp": 40, "pp": 0, "tp": 12, "world": 24}
    assert bytes_per_axis(trace, 1, (2, 1, 2), "received") == {"dp": 40, "pp": 0, "tp": 12, "world": 24}
    seconds = seconds_per_axis(trace, 0, (2, 1, 2))
    assert seconds["dp"] > 0 and seconds["tp"] > 0 and seconds["pp"] == 0


def test_picture_has_every_rank_in_the_colour_of_its_group():
    ax = draw_mesh((2, 1, 3), "tp")
    shown = [text.get_text() for text in ax.texts]
    assert [str(rank) for rank in range(6)] == [text for text in shown if text.isdigit()]
    colors = [patch.get_facecolor() for patch in ax.patches]
    assert len(set(colors)) == 2 and len(set(colors[:3])) == 1
