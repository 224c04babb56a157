"""`LocalHead`: where a stage's own loss looks, and what it leaves."""

import torch
from runtime.cases import chunked_graph, make_config
from torch import nn
from torch.nn import functional as F

from gnnpar.config.schema import BatchConfig, ParallelConfig, ScheduleConfig, WeightsConfig
from gnnpar.history import HistoryPolicy, ReadsPlanner
from gnnpar.model import Branch, LayerGraph
from gnnpar.model.layers import GCN
from gnnpar.model.layers.join import Join
from gnnpar.runtime import build_stage
from gnnpar.runtime.local import LocalHead
from gnnpar.runtime.targets import Targets


def test_a_head_leaves_the_gradient_that_the_next_stage_would_have_sent():
    chunked = chunked_graph().to(torch.float64, torch.device("cpu"))
    targets, chunk = Targets(chunked, torch.device("cpu")), chunked.chunks[1]
    about = (5, chunked.graph.num_classes, True, targets, 7, torch.float64, torch.device("cpu"))
    head, h = LocalHead(*about), torch.randn(chunk.num_rows, 5, dtype=torch.float64, requires_grad=True)
    reads = ReadsPlanner(chunked, HistoryPolicy("drop", 1, 0.0, 0), 1).plan(0, (0, 1, 2, 3))
    head.forward(chunk, h, reads)
    head.backward(chunk)
    again = h.detach().requires_grad_()
    (first, second) = head.maps
    rows = targets.rows(chunk)
    logits = F.linear(F.relu(F.linear(again[rows], *first)), *second)
    labels = chunked.graph.y[chunk.start : chunk.stop][rows]
    wanted = torch.autograd.grad(
        F.cross_entropy(logits, labels, reduction="sum"), [again, first[0], second[1]]
    )
    found = [h.grad, first[0].grad, second[1].grad]
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one * reads.normaliser, other)
    other = dict(LocalHead(*about).named_parameters())
    assert all(torch.equal(value, other[name]) for name, value in head.named_parameters())


def test_a_stage_that_ends_where_a_branch_ends_has_a_head_on_its_rows():
    """Such a stage hands its rows on as a carry; a head once looked for rows named h only."""
    chunked = chunked_graph().to(torch.float64, torch.device("cpu"))
    features = chunked.graph.num_features
    branches = {
        "near": Branch([GCN(features, 8)], inputs="features"),
        "far": Branch([GCN(features, 6), GCN(6, 6)], inputs="features"),
        "both": Branch([GCN(14, 8)], inputs=("near", "far"), join="cat"),
    }
    model = LayerGraph(branches, decoder=nn.Linear(8, chunked.graph.num_classes)).double()
    config = make_config(
        batch=BatchConfig(num_chunks=4, kind="clusters", steps_per_epoch=2),
        parallel=ParallelConfig(stages=2),
        schedule=ScheduleConfig(name="local_learning"),
        weights=WeightsConfig(policy="local"),
    )
    last = len(model.all_layers())
    joins = [isinstance(layer, Join) for layer in model.all_layers()]
    assert joins == [False, True, False, False, True, False, False]
    for cut, width in ((1, 8), (3, 6), (4, 6), (6, 8)):
        payloads = model.payloads(chunked.graph, (cut, last - cut))
        stage = build_stage(model, chunked, range(cut), 1, config, torch.device("cpu"), payloads, 0)
        assert stage.head is not None
        assert stage.head.maps[0][0].shape == (chunked.graph.num_classes, width)
