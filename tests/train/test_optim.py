"""Optimizers equal torch's plain ones, in parameter groups; schedules and clipping by formula."""

import math

import pytest
import torch
from torch import nn

from gnnpar.config import OptimizerConfig, TrainConfig
from gnnpar.train.optim import build_lr_schedule, build_optimizer, clip_coefficient, lr_factor

SHAPES = {
    "encoder.weight": (5, 3),
    "layers.0.weight": (5, 5),
    "layers.1.bias": (5,),
    "decoder.weight": (2, 5),
}


def parameters(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return {
        name: nn.Parameter(torch.randn(shape, generator=generator, dtype=dtype))
        for name, shape in SHAPES.items()
    }


def train(named, optimizers, schedule=None, num_steps=5):
    generator = torch.Generator().manual_seed(1)
    for _ in range(num_steps):
        for p in named.values():
            p.grad = torch.randn(p.shape, generator=generator, dtype=p.dtype)
        for optimizer in optimizers:
            optimizer.step()
        if schedule is not None:
            schedule.step()


PLAIN = {
    "adam": lambda groups: torch.optim.Adam(groups, lr=0.1, betas=(0.8, 0.99), eps=1e-6, foreach=False),
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=0.1, betas=(0.8, 0.99), eps=1e-6, foreach=False),
    "sgd": lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.7, foreach=False),
}


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("conv_decay", [None, 0.0, 0.3])
def test_equals_a_plain_optimizer_with_two_groups(name, conv_decay):
    ours, plain = parameters(), parameters()
    config = OptimizerConfig(name=name, betas=(0.8, 0.99), eps=1e-6, momentum=0.7)
    train(
        ours,
        [build_optimizer(ours, config, TrainConfig(lr=0.1, weight_decay=0.1, conv_weight_decay=conv_decay))],
    )
    decay = {key: 0.1 if conv_decay is None or key[0] != "l" else conv_decay for key in SHAPES}
    groups = [{"params": [p], "weight_decay": decay[key]} for key, p in plain.items()]
    train(plain, [PLAIN[name](groups)])
    for key in SHAPES:
        torch.testing.assert_close(ours[key], plain[key], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", PLAIN)
def test_splitting_the_parameters_over_stages_changes_no_bit(name):
    whole, split = parameters(torch.float32), parameters(torch.float32)
    config, loop = OptimizerConfig(name=name, momentum=0.7), TrainConfig(lr=0.1, conv_weight_decay=0.01)
    train(whole, [build_optimizer(whole, config, loop)])
    stages = [dict(list(split.items())[:2]), dict(list(split.items())[2:]), {}]
    train(split, [build_optimizer(stage, config, loop) for stage in stages])
    for key in SHAPES:
        assert torch.equal(whole[key], split[key])


def test_factors_of_the_schedules():
    cosine = TrainConfig(num_epochs=10, lr_schedule="cosine")
    assert lr_factor(0, cosine) == 1.0 and lr_factor(5, cosine) == pytest.approx(0.5)
    assert lr_factor(9, cosine) > 0 and lr_factor(10, cosine) == pytest.approx(0.0) == lr_factor(11, cosine)
    linear = TrainConfig(num_epochs=12, lr_schedule="linear", lr_warmup=2)
    assert [lr_factor(e, linear) for e in range(12)] == pytest.approx(
        [0.5, 1.0, 1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]
    )
    constant = TrainConfig(num_epochs=3, lr_warmup=4)
    assert [lr_factor(e, constant) for e in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_the_schedule_drives_both_groups():
    named = parameters()
    loop = TrainConfig(num_epochs=4, lr=0.2, lr_schedule="linear")
    optimizer = build_optimizer(named, OptimizerConfig(name="sgd"), loop)
    schedule = build_lr_schedule(optimizer, loop)
    train(named, [optimizer], schedule, num_steps=3)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.05, 0.05])


def test_a_constant_rate_needs_no_schedule():
    optimizer = build_optimizer(parameters(), OptimizerConfig(), TrainConfig())
    assert build_lr_schedule(optimizer, TrainConfig()) is None


def test_clip_coefficient():
    assert clip_coefficient(25.0, 10.0) == 1.0
    assert clip_coefficient(25.0, 1.0) == pytest.approx(0.2)
    assert clip_coefficient(0.0, 1.0) == 1.0
    assert math.isclose(clip_coefficient(4.0, 2.0), 1.0)
