"""Parameters that a step does not use: the optimizer leaves them alone, as in serial training.

Sums over replicas and ways used to give them zeros for a gradient, and weight decay then moved them.
"""

import pytest
import torch
from runtime.cases import chunked_graph, make_config
from torch import nn

from gnnpar.config.schema import BatchConfig, ParallelConfig, ScheduleConfig, TrainConfig
from gnnpar.dist import Context
from gnnpar.model import GCN, LayerStack
from gnnpar.train.trainer import Trainer

STEPS = 3
TRAIN = TrainConfig(lr=0.05, weight_decay=0.1)
RUNS = {
    "chimera": make_config(
        train=TRAIN,
        batch=BatchConfig(num_chunks=4, kind="clusters", shuffle=False),
        parallel=ParallelConfig(stages=2),
        schedule=ScheduleConfig(name="chimera"),
    ),
    "ways": make_config(
        train=TRAIN,
        batch=BatchConfig(num_chunks=2, kind="clusters", shuffle=False),
        parallel=ParallelConfig(stages=1, ways=2),
    ),
}
SERIAL = make_config(train=TRAIN, batch=BatchConfig(num_chunks=4, kind="clusters", shuffle=False))


class Spare(GCN):
    """A layer with a parameter that it never uses, and one that is frozen."""

    def __init__(self, width):
        super().__init__(width, width, dropout=0.3)
        self.unused = nn.Parameter(torch.ones(3))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)


def train(context, config):
    """State of this rank's stages after some steps."""
    chunked = chunked_graph()
    torch.manual_seed(0)
    width = 6
    model = LayerStack(
        nn.Linear(chunked.graph.num_features, width),
        [Spare(width) for _ in range(4)],
        nn.Linear(width, chunked.graph.num_classes),
    )
    trainer = Trainer(model, chunked, config, context)
    for _ in range(STEPS):
        trainer.train_step()
    return {name: value.clone() for name, value in trainer.state().items()}


@pytest.mark.parametrize("name", RUNS)
def test_they_stay_where_they_are_and_the_rest_is_as_in_serial_training(pool, name):
    wanted = train(Context.single(), SERIAL)
    assert all(torch.equal(v, torch.ones_like(v)) for k, v in wanted.items() if k.endswith("unused"))
    largest = max(float(value.abs().max()) for value in wanted.values())
    for state in pool.run(train, 2, RUNS[name], timeout_s=60):
        for key, value in state.items():
            assert float((value - wanted[key]).abs().max()) <= 1e-10 * largest, key
