"""Keys of the section `halo` that contradict each other or the rest of a run are told, all at once."""

import pytest

from gnnpar.config import compose
from gnnpar.errors import InputError

WAYS = ["system=graph_parallel"]


def faults_of(*overrides):
    with pytest.raises(InputError) as caught:
        compose(list(overrides))
    return caught.value.faults


@pytest.mark.parametrize(
    ("key", "reader"),
    [
        ("halo.smooth_features=0.5", "stale"),
        ("halo.smooth_gradients=0.5", "stale"),
        ("halo.rate=0.5", "sampled"),
        ("halo.period=2", "bounded"),
        ("halo.bound=0", "bounded"),
        ("halo.bits=8", "quantised"),
    ],
)
def test_a_key_of_another_mode_is_told(key, reader):
    for mode in {"exact", "stale"} - {reader}:
        (fault,) = faults_of(*WAYS, f"halo.mode={mode}", key)
        assert fault.startswith(key.partition("=")[0]) and f"set halo.mode={reader}" in fault
    compose([*WAYS, f"halo.mode={reader}", key])


@pytest.mark.parametrize("mode", ["stale", "sampled", "bounded", "quantised"])
def test_where_nothing_is_exchanged_or_slots_have_histories_it_is_refused(mode):
    keys = [*WAYS, f"halo.mode={mode}", *(["halo.bits=8"] if mode == "quantised" else [])]
    compose(keys)
    compose([*keys, "parallel.stages=2", "parallel.ways=[1,3]"])
    (fault,) = faults_of(*keys, "parallel.ways=1")
    assert "parallel.ways=1" in fault and "halo.mode=exact" in fault
    (fault,) = faults_of(*keys, "batch.kind=clusters")
    assert "clusters read none" in fault
    (fault,) = faults_of(*keys, "batch.num_chunks=3")
    assert "use batch.num_chunks=1" in fault


@pytest.mark.parametrize("mode", ["stale", "bounded"])
def test_late_rows_need_a_first_exact_step(mode):
    (fault,) = faults_of(*WAYS, f"halo.mode={mode}", "history.warmup_steps=0")
    assert fault.startswith("history.warmup_steps") and "use 1 or more" in fault
    (fault,) = faults_of(*WAYS, f"halo.mode={mode}", "history.refresh_every=2")
    assert fault.startswith("history.refresh_every")


@pytest.mark.parametrize("key", ["parallel.split=features", "memory.sequential=true"])
def test_ways_that_keep_their_own_rows_only_exchange_them_exactly(key):
    (fault,) = faults_of(*WAYS, "halo.mode=stale", key)
    assert fault.startswith("halo.mode") and key.partition("=")[0] in fault and "halo.mode=exact" in fault


def test_all_faults_at_once():
    faults = faults_of("halo.mode=quantised", "halo.rate=0.5", "parallel.ways=1", "batch.num_chunks=4")
    assert {fault.partition(":")[0] for fault in faults} == {"halo.rate", "halo.bits", "halo.mode"}
    assert len(faults) == 4


@pytest.mark.parametrize(
    ("mode", "value"),
    [
        ("sampled", "halo.rate=0"),
        ("sampled", "halo.rate=1.5"),
        ("quantised", "halo.bits=3"),
        ("bounded", "halo.bound=-1"),
        ("bounded", "halo.period=0"),
        ("stale", "halo.smooth_features=1"),
    ],
)
def test_values_out_of_range(mode, value):
    assert value.partition("=")[0] in faults_of(*WAYS, f"halo.mode={mode}", value)[0]
