"""The row of a run in the comparison of systems, from its configuration alone."""

import json

import pytest

from gnnpar.analysis import Stale, analyze_presets, taxonomy
from gnnpar.analysis.taxonomy import flat_values
from gnnpar.config import compose, group_choices
from gnnpar.train.order import build_schedule


def row(*overrides, **more):
    """The row of a configuration, with keys that it may not have yet."""
    config = compose(overrides)
    return taxonomy({**flat_values(config), **more}, build_schedule(config))


def test_every_preset_has_a_row():
    names = group_choices()["system"]
    rows = analyze_presets(names)
    assert [one.system for one in rows] == names
    for one in rows:
        assert one.mode == "training" and all(text for _, text in one.pairs())
        assert json.loads(json.dumps(one.to_json()))["system"] == one.system


def test_gnnpipe_is_a_macro_pipeline_of_dependent_micro_batches_with_bounded_embeddings():
    found = row("system=gnnpipe")
    assert (found.macro, found.mini_batch, found.micro_batches, found.mini_batch_parallel) == (
        2,
        "dependent",
        8,
        True,
    )
    assert found.stale == (Stale("embeddings", "of other micro-batches from histories", 1),)
    assert (found.partition, found.feature, found.structure, found.micro) == (1, 1, 1, False)
    assert (found.batch, found.weight_copies, found.distributed, found.order) == ("full", 1, True, "gpipe")
    snapshots = row("system=gnnpipe", "history.mode=snapshot", "history.period=20")
    assert [one.bound for one in snapshots.stale] == [20]
    assert row("system=gnnpipe", "history.mode=drop").stale == ()


def test_its_hybrid_adds_the_graph_partition():
    found = row("system=gnnpipe_hybrid")
    assert (found.partition, found.macro, found.mini_batch, found.processes) == (2, 2, "dependent", 4)
    assert found.weight_copies == 2


def test_graph_parallelism_alone_is_exact():
    found = row("system=graph_parallel", "parallel.ways=4")
    assert (found.partition, found.mini_batch, found.macro, found.stale) == (4, "", 1, ())
    assert found.remarks == () and dict(found.pairs())["remarks"] == "exact"


def test_full_batch_uses_no_axis():
    found = row("system=full_batch")
    assert not found.distributed and found.architecture == "one process"
    for axis in ("partition", "feature", "structure", "macro"):
        assert getattr(found, axis) == 1
    assert found.mini_batch == "" and found.stale == () and found.partitioning == "–"


def test_clusters_are_independent():
    found = row("system=dapple_pa", "parallel.ways=[2,1]")
    assert (found.mini_batch, found.mini_batch_parallel, found.partition) == ("independent", True, 1)
    assert found.remarks == ("edges between clusters are left out of training",)
    assert found.processes == 3 and found.stale == ()


@pytest.mark.parametrize(("gamma", "remark"), [(0, "are dropped"), (2, "times 2"), (1, "as constants")])
def test_gradients_between_micro_batches_are_told(gamma, remark):
    (found,) = row("system=gnnpipe", f"history.gamma={gamma}").remarks
    assert remark in found


def test_one_process_works_off_chunks_one_after_the_other():
    found = row("system=gnnpipe", "parallel.stages=1")
    assert (
        not found.mini_batch_parallel
        and "one after the other" in dict(found.pairs())["data parallelism: mini-batch"]
    )


# Axes by their keys, wherever a release has them.
def test_sampled_batches_are_independent_and_have_updates_of_their_own():
    for kind in ("neighbour", "layerwise", "saint", "shadow"):
        found = row("system=full_batch", **{"batch.kind": kind, "parallel.replicas": 4})
        assert (found.batch, found.mini_batch, found.mini_batch_parallel) == ("mini", "independent", True)
        assert found.processes == 4 and found.stale == ()
        assert "neighbours are sampled" in found.remarks


def test_several_steps_an_epoch_are_mini_batches_whose_histories_wait_longer():
    keys = {"batch.steps_per_epoch": 4, "batch.joined": 2}
    found = row("system=gnnpipe", "parallel.stages=1", "history.gamma=0", **keys)
    assert (found.batch, found.mini_batch, found.micro_batches) == ("mini", "dependent", 1)
    assert [(one.what, one.bound) for one in found.stale] == [("embeddings", 7)]
    found = row("system=gnnpipe", **keys, **{"history.compensate": True, "history.refresh_every": 3})
    assert [(one.what, one.bound) for one in found.stale] == [("embeddings", 3), ("gradients", 7)]
    found = row("system=gnnpipe", "batch.shuffle=false", **keys)
    assert found.stale[0].bound == 4


def test_stale_halos_are_asynchronous_and_overlap_the_phases_of_a_layer():
    found = row("system=graph_parallel", **{"halo.mode": "stale"})
    assert [(one.what, one.bound) for one in found.stale] == [("embeddings", 1), ("gradients", 1)]
    assert found.micro
    found = row("system=graph_parallel", **{"halo.mode": "bounded", "halo.period": 6, "halo.bound": 0.5})
    assert [(one.what, one.bound) for one in found.stale] == [("embeddings", 5)]
    assert row("system=graph_parallel", **{"halo.mode": "bounded"}).stale == ()
    for mode in ("sampled", "quantised"):
        found = row("system=graph_parallel", **{"halo.mode": mode})
        assert found.stale == () and not found.micro and found.remarks


def test_ways_may_split_features():
    found = row("system=graph_parallel", **{"parallel.split": "features"})
    assert (found.feature, found.partition) == (2, 1)


def test_weights_of_earlier_steps_are_asynchronous():
    found = row("system=pipedream", "parallel.stages=4")
    assert str(found.stale[0]) == "weights without a flush (stash), at most 3 steps old"
    assert (found.batch, found.mini_batch_parallel) == ("mini", True)
    assert [one.bound for one in row("system=pipedream_2bw").stale] == [1]
    local = row("system=ppll")
    assert local.stale == () and "loss of its own" in " ".join(local.remarks)
