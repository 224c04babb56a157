"""VR-GCN against a dense serial reference of its update: loss and gradients of several steps, dropout on."""

import copy
from dataclasses import replace

import pytest
import torch
from oracle.models import build
from runtime.cases import dense_operator
from torch.nn import functional as F
from train.test_mini_batches import assert_same, compare, config_of, steps_of, trainer_of

from gnnpar.config.schema import HistoryConfig
from gnnpar.dist import Context, Mesh
from gnnpar.errors import InputError
from gnnpar.model import Rows

STEPS = 5


def with_variates(config):
    return replace(config, history=HistoryConfig(control_variates=True))


class Dense:
    """Z = Q (X - H[V]) + P H over all vertices, self loops apart; H[V] = X when the step is over."""

    def __init__(self, config, **keys):
        trainer = trainer_of(config, **keys)
        self.config, self.feed = config, trainer.feed
        self.graph = trainer.chunked.graph
        self.model = build(config.model.name, self.graph, norm=config.model.norm)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config.train.lr)
        self.histories = {}

    def step(self, number, reads_history=True):
        self.optimizer.zero_grad()
        written, total = [], 0.0
        for _, one in sorted(self.feed.draw(number).minis.items(), key=lambda pair: pair[0].index):
            logits = self.forward(number, one.batch, written, reads_history)
            batch = one.batch
            loss = F.cross_entropy(
                logits[batch.targets], self.graph.y[batch.target_vertices], reduction="sum"
            )
            total = total + one.share * loss
        total.backward()
        for index, vertices, x in written:
            self.histories.setdefault(index, torch.zeros(self.graph.num_nodes, x.shape[1]).double())
            self.histories[index][vertices] = x
        gradients = {name: p.grad.clone() for name, p in self.model.named_parameters()}
        self.optimizer.step()
        return total.item(), gradients

    def forward(self, number, batch, written, reads_history):
        graph, h, carries, place = self.graph, self.graph.x[batch.vertices], {}, 0
        for index, layer in enumerate(self.model.all_layers()):
            rows = Rows(graph.node_ids[batch.vertices[: len(h)]], self.config.seed, number, index, True)
            z = h
            if layer.operator is not None:
                block = batch.blocks[place]
                place += 1
                x = layer.before(h, carries, rows)
                z = self.aggregate(layer, x, block, batch.vertices, index, reads_history)
                written.append((index, batch.vertices[: len(x)], x.detach()))
                h = h[: block.num_rows]
                carries = {name: value[: block.num_rows] for name, value in carries.items()}
                rows = Rows(rows.ids[: block.num_rows], rows.seed, number, index, True)
            h = layer.after(z, h, carries, rows)
            if index in self.model.keeps:
                carries[self.model.keeps[index]] = h
        return h

    def aggregate(self, layer, x, block, vertices, index, reads_history):
        operator = layer.operator
        whole = dense_operator(self.graph, operator)
        loops = whole.diagonal() * operator.self_loops  # the graph itself has none
        own = vertices[: block.num_rows]
        edges = whole - torch.diag(loops)
        sampled = torch.zeros(block.num_rows, block.num_columns).double()
        # Of an edge the graph's own entry, times what its weight was multiplied by for being drawn.
        entries = edges[own[block.rows], vertices[block.columns]]
        sampled.index_put_((block.rows, block.columns), entries * block.edge_weight, accumulate=True)
        past = self.histories.get(index, torch.zeros(self.graph.num_nodes, x.shape[1]).double())
        if not reads_history:
            past = torch.zeros_like(past)
        z = sampled @ (x - past[vertices[: block.num_columns]]) + edges[own] @ past
        return z + loops[own, None] * x[: block.num_rows]


CASES = [
    config_of("gcn", fanouts=(2, 1, 2, 1), size=5),
    config_of("sage", fanouts=(1, 1, 1, 1), size=3, per_step=2),
    config_of("gcnii", fanouts=(2, 1, 2, 1), size=5, recompute=True),
    config_of("gin", fanouts=(2, 1, 2, 1), size=5, per_step=2, replace=True),
]


@pytest.mark.parametrize("config", CASES, ids=lambda config: config.model.name)
@pytest.mark.parametrize("directed", [True, False])
def test_loss_and_gradients_are_those_of_the_dense_reference(config, directed):
    config = with_variates(config)
    ((found, _),) = steps_of(Context.single(), [(config, {"directed": directed})], STEPS)
    dense = Dense(config, directed=directed)
    assert_same(found, [dense.step(number) for number in range(STEPS)])


def test_without_histories_it_would_differ():
    """The comparison can fail."""
    config = with_variates(CASES[0])
    ((found, _),) = steps_of(Context.single(), [(config, {})], 3)
    dense = Dense(config)
    steps = [dense.step(number, reads_history=False) for number in range(3)]
    assert_same(found[:1], steps[:1])  # there are none yet
    with pytest.raises(AssertionError):
        assert_same(found[1:], steps[1:])


def serial(config, keys):
    """In one process; of several replicas, each would have histories of its own."""
    assert Mesh.of(config).slot_size == 1
    dense = Dense(replace(config, parallel=replace(config.parallel, stages=1, layers_per_stage=None)), **keys)
    return [dense.step(number) for number in range(2)], None


def test_stages_have_histories_of_their_layers(pool):
    cases = [
        (with_variates(config_of("gcn", stages=2, fanouts=(2, 1, 2, 1), per_step=2)), {}),
        (with_variates(config_of("gcnii", stages=2, fanouts=(2, 1, 2, 1))), {"directed": False}),
    ]
    compare(pool, 2, cases, serial)


def test_histories_handed_out_go_on_where_they_were():
    config = with_variates(CASES[0])
    first, second, fresh = (trainer_of(config) for _ in range(3))
    for _ in range(3):
        first.train_step()
    state = copy.deepcopy(first.histories_state())
    for other in (second, fresh):
        for name, value in other.parameters().items():
            value.copy_(first.parameters()[name])
        other.step = first.step
    second.load_histories(state)
    wanted = first.train_step().loss
    assert second.train_step().loss == wanted != fresh.train_step().loss
    with pytest.raises(InputError, match="keep graph"):
        second.load_histories({**state, "graph": "another"})
