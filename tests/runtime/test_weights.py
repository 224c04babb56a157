"""Weight policies: the replay against recursions written out here, and what each policy is known for."""

import math

import pytest
import torch
from torch import nn

from gnnpar.errors import InputError, RunError
from gnnpar.runtime.delayed import DelayedOptimizer
from gnnpar.runtime.policies import POLICIES
from gnnpar.runtime.weights import PassPlan, StageWeights, delay_of, rate_factor
from gnnpar.schedule import Kind
from gnnpar.schedule.families import FAMILIES
from gnnpar.schedule.updates import updates_before, updates_until_return

STAGES, WIDTH, ROWS, UPDATES = 4, 5, 7, 20
OPTIMIZERS = {
    "sgd": lambda named: torch.optim.SGD(list(named.values()), lr=0.004),
    "momentum": lambda named: torch.optim.SGD(list(named.values()), lr=0.004, momentum=0.9),
    "adam": lambda named: torch.optim.Adam(list(named.values()), lr=0.01),
    "adamw": lambda named: torch.optim.AdamW(list(named.values()), lr=0.01, weight_decay=0.1),
}
PREDICTS = ("spectrain", "xpipe", "pipeoptim")
REPLAYED = [name for name in POLICIES if name != "local"]


class Net(nn.Module):
    """tanh(… tanh(x W_0) … W_S)."""

    def __init__(self):
        super().__init__()
        self.weights = nn.ParameterList(
            nn.Parameter(torch.randn(WIDTH, WIDTH, dtype=torch.float64)) for _ in range(STAGES)
        )

    def forward(self, x):
        for weight in self.weights:
            x = torch.tanh(x @ weight)
        return x


def batches(count):
    make = torch.Generator().manual_seed(5)
    return [torch.randn(2, ROWS, WIDTH, dtype=torch.float64, generator=make) for _ in range(count)]


def by_hand(x, y, forward, backward):
    """Gradients of ‖net(x) - y‖² where the layers of the way back have other weights."""
    rows = [x]
    for weight in forward:
        rows.append(torch.tanh(rows[-1] @ weight))
    back, found = 2 * (rows[-1] - y), []
    for before, after, weight in zip(
        reversed(rows[:-1]), reversed(rows[1:]), reversed(backward), strict=True
    ):
        back = back * (1 - after**2)
        found.append(before.t() @ back)
        back = back @ weight.t()
    return found[::-1]


def reference(policy, optimizer, size, decay, horizon):
    """The versions of every stage after UPDATES updates: W[s][t], all reads written out by number."""
    torch.manual_seed(3)
    masters = [nn.Parameter(weight.detach().clone()) for weight in Net().weights]
    steppers = [OPTIMIZERS[optimizer]({"w": master}) for master in masters]
    W = [[master.detach().clone()] for master in masters]
    drift = [[torch.zeros_like(master)] for master in masters]

    def move(s, t):
        return W[s][t] - W[s][t - 1] if t else torch.zeros_like(W[s][0])

    for k in range(UPDATES):
        sums = [torch.zeros_like(master) for master in masters]
        for m in range(k * size, (k + 1) * size):
            ahead, back = [], []
            for s in range(STAGES):
                bell = k * size if policy == "xpipe" else m
                t = max(0, bell - (STAGES - 1 - s)) // size
                if policy == "vertical":
                    t = max(0, m - (STAGES - 1)) // size
                if policy == "double":
                    t = max(0, k - 1)
                far, near = {
                    "spectrain": (s // 2 + STAGES - s - 1, s // 2),
                    "xpipe": (math.floor((size + STAGES - s / 2 - 2) / size), (size + s // 2 - 1) // size),
                    "pipeoptim": (STAGES - s - 1, 0),
                }.get(policy, (0, 0))
                ahead.append(W[s][t] + far * move(s, t))
                if policy in ("stash", "vertical", "double"):
                    back.append(ahead[-1])
                elif policy == "pipemare":
                    back.append(W[s][k] - (2 * (STAGES - 1 - s) + 1) / size * drift[s][k])
                else:
                    back.append(W[s][k] + near * move(s, k))
            sums = [
                a + g for a, g in zip(sums, by_hand(*batches(UPDATES * size)[m], ahead, back), strict=True)
            ]
        for s, (master, stepper) in enumerate(zip(masters, steppers, strict=True)):
            tau = (2 * (STAGES - 1 - s) + 1) / size
            if policy == "pipemare" and horizon:
                stepper.param_groups[0]["lr"] = 0.004 / max(1.0, tau) ** (1 - min(k / horizon, 1))
            master.grad = sums[s]
            stepper.step()
            W[s].append(master.detach().clone())
            gamma = decay ** (1 / tau)
            drift[s].append(gamma * drift[s][k] + (1 - gamma) * move(s, k + 1))
    return [versions[-1] for versions in W]


def replay(policy, optimizer, size=1, **options):
    torch.manual_seed(3)
    net = Net()
    stages = [{f"w{s}": weight} for s, weight in enumerate(net.weights)]
    delayed = DelayedOptimizer(stages, OPTIMIZERS[optimizer], policy, micro_batches=size, **options)
    for x, y in batches(UPDATES * size):
        with delayed.forward():
            loss = ((net(x) - y) ** 2).sum()
        with delayed.backward():
            loss.backward()
    delayed.show_newest()
    return [weight.detach() for weight in net.weights]


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("policy", REPLAYED)
def test_the_replay_equals_the_written_out_recursion(policy, size):
    optimizer = "momentum" if policy in ("spectrain", "pipeoptim") else "sgd"
    optimizer = "adam" if policy == "xpipe" else optimizer
    options = {"decay": 0.2, "horizon": 15} if policy == "pipemare" else {}
    found = replay(policy, optimizer, size, **options)
    wanted = reference(policy, optimizer, size, options.get("decay", 0.135), options.get("horizon", 0))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_the_policies_differ():
    # With one micro-batch an update, XPipe's distances are SpecTrain's.
    ends = [replay(policy, "momentum", size=2)[0] for policy in REPLAYED]
    for number, one in enumerate(ends):
        assert all((one - other).abs().max() > 1e-6 for other in ends[number + 1 :]), REPLAYED[number]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("policy", REPLAYED)
def test_one_stage_is_the_plain_optimizer(policy, optimizer):
    weights = [nn.Parameter(torch.ones(WIDTH, WIDTH, dtype=torch.float64) / 4) for _ in range(2)]
    delayed = DelayedOptimizer([{"w": weights[0]}], OPTIMIZERS[optimizer], policy)
    plain = OPTIMIZERS[optimizer]({"w": weights[1]})
    if policy == "double":  # which is one update late by definition
        return
    for x, y in batches(6):
        with delayed.forward():
            loss = ((torch.tanh(x @ weights[0]) - y) ** 2).sum()
        with delayed.backward():
            loss.backward()
        plain.zero_grad()
        ((torch.tanh(x @ weights[1]) - y) ** 2).sum().backward()
        plain.step()
        delayed.show_newest()
        torch.testing.assert_close(weights[0], weights[1], rtol=1e-13, atol=1e-13)


def test_double_buffering_is_gradient_descent_one_update_late():
    found = replay("double", "sgd", size=4)
    torch.manual_seed(3)
    now = [weight.detach() for weight in Net().weights]
    late = now
    data = batches(UPDATES * 4)
    for k in range(UPDATES):
        sums = [
            sum(g)
            for g in zip(*(by_hand(*data[m], late, late) for m in range(4 * k, 4 * k + 4)), strict=True)
        ]
        now, late = [w - 0.004 * g for w, g in zip(now, sums, strict=True)], now
    for one, other in zip(found, now, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    ("policy", "size"), [(p, t) for p in REPLAYED for t in (1, 4) if p != "double" or t == 4]
)
@pytest.mark.parametrize("num_stages", [2, 4])
def test_no_more_versions_are_alive_than_a_policy_promises(policy, size, num_stages):
    schedule = FAMILIES["async_1f1b"](num_stages, 12 * size, updates=12)
    entry, row = updates_before(schedule, Kind.F)[0], POLICIES[policy]
    for stage, program in enumerate(schedule.ranks):
        distance = row.distances and row.distances(stage, num_stages, size)
        ahead = dict.fromkeys(range(12 * size), distance).__getitem__ if distance else None
        weight = nn.Parameter(torch.zeros(2))
        plan = PassPlan(stage, num_stages, size, ahead, entry.__getitem__)
        held = StageWeights({"w": weight}, OPTIMIZERS["momentum"], row, plan)
        seen, most = {}, 0
        for action in program:
            if action.kind is Kind.STEP:
                weight.grad = torch.ones(2)
                held.step()
            elif action.kind is Kind.F:
                held.forward(action.micro_batch)
                seen[action.micro_batch] = weight.data_ptr()
            else:
                held.backward(action.micro_batch)
                if not row.rereads:
                    assert weight.data_ptr() == seen[action.micro_batch]
            most = max(most, held.num_alive)
        bound = row.num_versions(stage, num_stages)
        assert most <= bound + (2 if row.once else 0)
        if policy == "stash" and size == 1:
            assert most == bound == num_stages - stage


@pytest.mark.parametrize("policy", PREDICTS)
def test_a_constant_velocity_is_predicted_exactly(policy):
    row, weight = POLICIES[policy], nn.Parameter(torch.zeros(3, dtype=torch.float64))
    ahead = row.distances(0, STAGES, 1)
    plan = PassPlan(0, STAGES, 1, lambda m: ahead, lambda m: 0)
    held = StageWeights({"w": weight}, OPTIMIZERS["adam"], row, plan)
    past = []
    for number in range(30):
        held.forward(number)
        past.append((held.now, weight.detach().clone()))
        weight.grad = torch.full((3,), 2.0, dtype=torch.float64)  # Adam then moves by lr each time
        held.step()
    held.settle()
    for now, predicted in past[1:]:
        torch.testing.assert_close(predicted, torch.full_like(predicted, -0.01 * (now + ahead[0])))


def test_prediction_by_velocity_is_the_published_formula():
    """XPipe: W - s · lr · m̂ / (√v̂ + ε); the velocity of the last update is just that."""
    weight = nn.Parameter(torch.randn(4, dtype=torch.float64))
    plan = PassPlan(0, STAGES, 1, lambda m: (3, 0), lambda m: 0)
    held = StageWeights({"w": weight}, OPTIMIZERS["adam"], POLICIES["xpipe"], plan)
    for number in range(1, 6):
        weight.grad = torch.randn(4, dtype=torch.float64)
        held.step()
        held.forward(number)
        (state,) = held.optimizer.state.values()
        mean, square = state["exp_avg"] / (1 - 0.9**number), state["exp_avg_sq"] / (1 - 0.999**number)
        wanted = held.masters[0] - 3 * 0.01 * mean / (square.sqrt() + 1e-8)
        torch.testing.assert_close(weight.detach(), wanted.detach(), rtol=1e-12, atol=1e-12)


def test_pipemare_s_correction_finds_the_forward_weights_under_constant_velocity():
    for stage in range(STAGES):
        delay = delay_of(stage, STAGES, 1)
        weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        plan = PassPlan(stage, STAGES, 1, None, lambda m: 0)
        held = StageWeights({"w": weight}, OPTIMIZERS["sgd"], POLICIES["pipemare"], plan)
        for _ in range(200):
            weight.grad = torch.ones(1, dtype=torch.float64)
            held.step()
        held.backward(200)
        torch.testing.assert_close(weight.item(), -0.004 * (200 - delay), rtol=1e-10, atol=1e-10)


def test_pipemare_s_rates_rise_to_the_given_one():
    assert rate_factor(7.0, 0, 100) == pytest.approx(1 / 7)
    assert rate_factor(7.0, 50, 100) == pytest.approx(7**-0.5)
    assert rate_factor(7.0, 100, 100) == rate_factor(7.0, 999, 100) == rate_factor(7.0, 0, 0) == 1.0
    assert rate_factor(0.5, 0, 100) == 1.0  # never faster than asked for


@pytest.mark.parametrize("delay", [1, 3, 10])
@pytest.mark.parametrize(("share", "stable"), [(0.98, True), (1.02, False)])
def test_a_delayed_quadratic_is_stable_up_to_pipemare_s_limit(delay, share, stable):
    """Yang et al. 2021, lemma 1: α λ ≤ 2 sin(π / (4 τ + 2))."""
    weight = nn.Parameter(torch.ones(1, dtype=torch.float64))
    rate = share * 2 * math.sin(math.pi / (4 * delay + 2))
    make = lambda named: torch.optim.SGD([{"params": list(named.values())}], lr=rate)  # noqa: E731
    delayed = DelayedOptimizer([{"w": weight}, *({} for _ in range(delay))], make, "stash")
    for _ in range(600 * (delay + 1)):
        with delayed.forward():
            loss = 0.5 * (weight**2).sum()
        with delayed.backward():
            loss.backward()
    delayed.show_newest()
    assert (abs(weight.item()) < 0.1) is stable


def test_counts_of_updates_follow_from_the_schedule():
    schedule = FAMILIES["async_1f1b"](4, 24, updates=12)
    counts = updates_before(schedule, Kind.F)
    for stage in range(4):
        assert counts[stage] == tuple(max(0, m - (3 - stage)) // 2 for m in range(24))
    assert updates_before(schedule, Kind.B)[1] == tuple(m // 2 for m in range(24))


@pytest.mark.parametrize(("num_stages", "size"), [(4, 1), (4, 4), (8, 2)])
def test_xpipe_s_distances_are_those_of_the_schedule_give_or_take_one(num_stages, size):
    schedule = FAMILIES["async_1f1b"](num_stages, 24 * size, updates=24)
    for at, kind in enumerate((Kind.F, Kind.B)):
        counted = updates_until_return(schedule, kind)
        for stage in range(num_stages):
            formula = POLICIES["xpipe"].distances(stage, num_stages, size)[at]
            assert abs(counted[stage][12 * size] - formula) <= 1


def test_mistakes_are_told():
    with pytest.raises(InputError) as caught:
        DelayedOptimizer([], OPTIMIZERS["sgd"], "stach", micro_batches=0)
    assert len(caught.value.faults) == 3
    plan = PassPlan(0, 2, 1, None, lambda m: 0)
    held = StageWeights({"w": nn.Parameter(torch.zeros(1))}, OPTIMIZERS["sgd"], POLICIES["stash"], plan)
    with pytest.raises(RunError, match="after 3 updates are asked for"):
        held.forward(0, now=3)
