"""What a run's parent writes for its workers, and what one worker does with it."""

import json

import pytest
import torch
from runtime.cases import chunked_graph, make_config
from support.graphs import tiny_graph
from torch import nn

from gnnpar.config.files import to_yaml
from gnnpar.config.schema import TraceConfig, TrainConfig
from gnnpar.dist import Context
from gnnpar.model import Layer, LayerStack, Pull
from gnnpar.model.layers import GCN
from gnnpar.train.job import Job, make_model, pickle_model, run_rank


def write_job(folder, config, chunked, model=None):
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").write_text(to_yaml(config))
    job = Job(folder)
    job.write(chunked, None if model is None else pickle_model(model))
    return job


def state(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_the_model_depends_on_the_seed_alone_and_draws_nothing_from_the_users_generator():
    graph = tiny_graph()
    torch.manual_seed(11)
    before = torch.get_rng_state()
    first = state(make_model(make_config(seed=4), graph))
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(5)
    assert equal(first, state(make_model(make_config(seed=4), graph)))
    assert not equal(first, state(make_model(make_config(seed=5), graph)))


@pytest.mark.parametrize("sparse", [False, True])
def test_every_rank_reads_what_the_parent_wrote(tmp_path, sparse):
    config, chunked = make_config(seed=3), chunked_graph(4, sparse=sparse)
    found_config, found, model = write_job(tmp_path, config, chunked).read()
    assert found_config == config and found.offsets == chunked.offsets
    assert found.graph.fingerprint == chunked.graph.fingerprint
    assert equal(state(model), state(make_model(config, chunked.graph)))


def test_a_model_of_ones_own_is_handed_over_with_its_parameters(tmp_path):
    class Local(Layer):
        """Defined where no import reaches it."""

        operator = Pull("mean")

        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.5))

        def after(self, z, h, carries, rows):
            return z * self.scale

    model = LayerStack(nn.Linear(7, 6), [Local(), GCN(6, 6)], nn.Linear(6, 3))
    job = write_job(tmp_path, make_config(), chunked_graph(4), model)
    _, _, found = job.read()
    assert equal(state(found), state(model)) and type(found.layers[0]).__name__ == "Local"


def test_the_hand_over_is_removed_and_the_rest_stays(tmp_path):
    job = write_job(tmp_path, make_config(), chunked_graph(4))
    assert (tmp_path / ".job").exists()
    job.remove()
    job.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


def test_one_rank_trains_and_writes_results(tmp_path):
    train = TrainConfig(num_epochs=4, lr=0.05, eval_every=2)
    config = make_config(train=train, trace=TraceConfig(tensorboard=False))
    chunked = chunked_graph(4)
    job = write_job(tmp_path, config, chunked)
    summary = run_rank(job, Context.single())
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4]
    assert ["val_metric" in row for row in rows] == [False, True, False, True]
    parameters = torch.load(tmp_path / "model.pt", weights_only=True)
    model = make_model(config, chunked.graph).double()
    assert parameters.keys() == dict(model.named_parameters()).keys()
    model.load_state_dict(parameters)
    graph = chunked.graph
    with torch.no_grad():
        logits = model.eval()(graph)
    labelled = graph.test_mask & (graph.y >= 0)
    accuracy = (logits.argmax(1) == graph.y)[labelled].double().mean().item()
    assert accuracy == pytest.approx(summary["test_accuracy"])
    assert not list(tmp_path.glob("tensorboard*"))
