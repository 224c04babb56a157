"""The samplers' loops: the same batches without numba, and nothing kept from batch to batch."""

import subprocess
import sys
import textwrap
from pathlib import Path

import torch
from support.graphs import tiny_graph
from support.sampling import KEY, keys, tensors

from gnnpar.batch import (
    ClusterSampler,
    LayerSampler,
    NeighbourSampler,
    SaintSampler,
    ShadowSampler,
    edge_draws,
    node_draws,
    walk_draws,
)
from gnnpar.partition import partition_graph


def samplers(graph, partition):
    """One of every kind, with seeds for it."""
    seeds, index = torch.tensor([11, 5, 0, 6, 39]), torch.arange(0, 40, 3)
    return {
        "distinct": (NeighbourSampler(graph, [3, 2, -1]), seeds),
        "replace": (NeighbourSampler(graph, [3, 2], replace=True), seeds),
        "labor": (NeighbourSampler(graph, [3, 2], labor=True), seeds),
        "fastgcn": (LayerSampler(graph, [6, 6], "fastgcn"), seeds),
        "ladies": (LayerSampler(graph, [6, 6], normalise=True), seeds),
        "cluster": (ClusterSampler(graph, partition, index), torch.tensor([2, 0])),
        "node": (SaintSampler(node_draws(graph), index, 9), torch.arange(9)),
        "edge": (SaintSampler(edge_draws(graph), index, 9), torch.arange(9)),
        "walk": (SaintSampler(walk_draws(graph, 2, rounds=3), index, 9), torch.arange(9)),
        "shadow": (ShadowSampler(graph, 2, 2), seeds),
    }


def test_batches_are_the_same_without_numba(tmp_path):
    graph = tiny_graph(weighted=True, edge_features=2)
    partition = partition_graph(graph, 4)
    ours = {
        name: tensors(sampler.sample(seeds, KEY))
        for name, (sampler, seeds) in samplers(graph, partition).items()
    }
    torch.save({"ours": ours, "graph": graph, "partition": partition}, tmp_path / "ours.pt")
    code = f"""
        import sys
        sys.modules["numba"] = None
        sys.path[:0] = {[str(Path(__file__).parent), *sys.path]!r}
        import warnings; warnings.simplefilter("error")
        import torch
        from test_sampler_loops import samplers
        from support.sampling import KEY, tensors
        given = torch.load({str(tmp_path / "ours.pt")!r}, weights_only=False)
        for name, (sampler, seeds) in samplers(given["graph"], given["partition"]).items():
            found = tensors(sampler.sample(seeds, KEY))
            assert len(found) == len(given["ours"][name])
            for a, b in zip(found, given["ours"][name]):
                assert torch.equal(a, b), name
        print("same")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "same\n"


def test_scratch_is_clean_after_every_batch(graph):
    for name, (sampler, seeds) in samplers(graph, partition_graph(graph, 4)).items():
        for key in keys(3):
            sampler.sample(seeds, key)
        idle = sampler._structure._idle
        assert len(idle) <= 2, name
        assert all((mark == -1).all() for mark in idle), name


def test_importing_batches_does_not_import_numba():
    code = "import sys, gnnpar.batch; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_indices_of_64_bits(graph):
    wide = graph.replace(indices=graph.indices.long())
    theirs = samplers(wide, partition_graph(wide, 4))
    for name, (sampler, seeds) in samplers(graph, partition_graph(graph, 4)).items():
        pairs = zip(
            tensors(sampler.sample(seeds, KEY)), tensors(theirs[name][0].sample(seeds, KEY)), strict=True
        )
        assert all(torch.equal(a, b) for a, b in pairs), name
