"""Models by name, and jumping knowledge."""

import pytest
import torch
from support.graphs import tiny_graph

from gnnpar.config import ModelConfig
from gnnpar.errors import InputError
from gnnpar.model import Encoder, build_model

NAMES = ["gcn", "sage", "gin", "gat", "gcnii", "resgcn", "gen"]


def build(**keys):
    keys = {"num_layers": 3, "hidden": 8, "heads": 2, "attention_dropout": 0.3, "norm": "layer"} | keys
    torch.manual_seed(0)
    return build_model(ModelConfig(**keys), 7, 3).double()


@pytest.mark.parametrize("jumping_knowledge", ["none", "cat", "max", "sum"])
@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_learns(name, jumping_knowledge, featured_graph):
    model = build(name=name, jumping_knowledge=jumping_knowledge).train()
    model(featured_graph, seed=1, step=2).square().sum().backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert float(parameter.grad.abs().max()) > 0, key


@pytest.mark.parametrize("name", NAMES)
def test_evaluation_draws_no_dropout(name):
    model, graph = build(name=name).eval(), tiny_graph()
    assert torch.equal(model(graph, seed=1), model(graph, seed=2))
    model.train()
    assert not torch.equal(model(graph, seed=1), model(graph, seed=2))


def test_jumping_by_cat_is_a_linear_map_of_the_concatenation():
    model, graph = build(name="gcn", jumping_knowledge="cat").eval(), tiny_graph()
    plain = build(name="gcn").eval()
    inner = {k.replace(".layer.", "."): v for k, v in model.state_dict().items() if ".layer." in k}
    ends = {k: v for k, v in model.state_dict().items() if k.startswith("encoder.")}
    plain.load_state_dict(inner | ends, strict=False)
    outputs = []
    hooks = [
        layer.norm.register_forward_hook(lambda m, i, out: outputs.append(out.relu()))
        for layer in plain.layers
    ]
    plain(graph)
    # The check on the probe graph runs the layers, too: the last three outputs are those of this graph.
    found = torch.cat(outputs[-3:], 1)
    assert len(hooks) == 3
    weight = torch.cat([layer.linear.weight for layer in model.layers], 1)
    torch.testing.assert_close(model(graph), found @ weight.T + model.decoder.bias, rtol=0, atol=1e-12)


@pytest.mark.parametrize("mode", ["max", "sum"])
def test_jumping_by_max_and_sum(mode):
    model, graph = build(name="gcn", jumping_knowledge=mode).eval(), tiny_graph()
    outputs = []
    for layer in model.layers:
        layer.layer.norm.register_forward_hook(lambda m, i, out: outputs.append(out.relu()))
    logits = model(graph)
    gathered = torch.stack(outputs[-3:])
    gathered = gathered.sum(0) if mode == "sum" else gathered.amax(0)
    torch.testing.assert_close(logits, model.decoder.linear(gathered), rtol=0, atol=1e-12)


def test_pre_activation_models_have_open_ends():
    model = build(name="resgcn")
    assert isinstance(model.encoder, Encoder)
    assert model.encoder.activation is None
    assert model.decoder.pre_activation
    assert build(name="gcn").encoder.activation is not None


def test_batch_norm_models_are_marked():
    assert build(name="gcn", norm="batch").chunk_dependent
    assert not build(name="gcn").chunk_dependent


def test_heads_must_divide_the_width():
    with pytest.raises(InputError, match=r"3 heads do not divide model\.hidden=8"):
        build(name="gat", heads=3)


def test_custom_has_no_recipe():
    with pytest.raises(InputError, match="no network is named 'custom'; choose one of gcn, sage"):
        build(name="custom")
