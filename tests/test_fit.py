"""Models of one's own, trained in real processes from Python."""

import importlib.util
import json
import math
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch import nn

import gnnpar
from gnnpar.errors import InputError
from gnnpar.model.layers import GAT, GCN, GCNII

DEADLINE_S = 120
SUMMARY = {"test_accuracy", "val_accuracy", "best_epoch", "epoch_time_s", "eval_time_s", "bytes_per_epoch"}
SUMMARY |= {"bubble", "bubble_theory", "history_age_mean", "history_read_share", "peak_memory_bytes"}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("GNNPAR_DATA", str(tmp_path / "home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def graph():
    """Three communities of 20 vertices, features that tell them apart, a directed ring inside each."""
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(60) % 3
    source = torch.arange(60)
    edges = torch.cat([torch.stack([source, (source + 3 * k) % 60]) for k in (1, 2, 5)], 1)
    x = torch.randn(60, 5, generator=draw) + 2 * nn.functional.one_hot(y, 5)
    part = torch.randint(3, (60,), generator=draw)
    masks = {f"{name}_mask": part == i for i, name in enumerate(("train", "val", "test"))}
    return gnnpar.Graph.from_edge_index(edges, x=x, y=y, name="rings", **masks)


def stack(graph):
    torch.manual_seed(1)
    layers = [GCN(8, 8), nn.ReLU(), GAT(8, 4, heads=2), GCNII(8, 1), GCNII(8, 2, dropout=0.2)]
    return gnnpar.LayerStack(nn.Linear(graph.num_features, 8), layers, nn.Linear(8, graph.num_classes))


def test_fit_trains_in_two_processes_and_loads_the_best_parameters_back(graph, folder, capfd):
    model = stack(graph)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    overrides = ["train.num_epochs=12", "train.eval_every=3", "train.lr=0.02", "run.dir=out"]
    overrides += ["launch.timeout_s=60", "parallel.layers_per_stage=[2,3]"]
    result = gnnpar.fit(model, graph, stages=2, chunks=4, overrides=overrides)

    assert all(not torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(result.parameters[name], value) for name, value in model.state_dict().items())
    with torch.no_grad():
        right = model.eval()(graph).argmax(1) == graph.y
    assert right[graph.test_mask].double().mean().item() == pytest.approx(result.test_accuracy)
    assert right[graph.val_mask].double().mean().item() == pytest.approx(result.val_accuracy)
    assert result.best_epoch in (3, 6, 9, 12)

    files = {path.name for path in result.run_dir.iterdir()}
    assert files == {
        "config.yaml",
        "command.txt",
        "env.json",
        "logs",
        "metrics.jsonl",
        "model.pt",
        "summary.json",
        "tensorboard",
    }
    assert {path.name for path in (result.run_dir / "logs").iterdir()} == {"rank0.log", "rank1.log"}
    for rank, stage in enumerate(("encoder to layers.1", "layers.2 to decoder")):
        log = (result.run_dir / "logs" / f"rank{rank}.log").read_text()
        assert f"rank {rank} of 2: " in log and f"1 threads, stage {rank}: {stage}\n" in log
        assert log.count("; accuracy: train ") == 4
    assert "accuracy: train" not in capfd.readouterr().err
    rows = [json.loads(line) for line in (result.run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == list(range(1, 13))
    assert (
        all(math.isfinite(row["train_loss"]) for row in rows)
        and rows[-1]["train_loss"] < rows[0]["train_loss"]
    )
    summary = json.loads((result.run_dir / "summary.json").read_text())
    assert summary.keys() >= SUMMARY and summary == result.summary
    assert summary["layers_per_stage"] == [2, 3] and len(summary["peak_memory_bytes"]) == 2
    # h and h0 cross, forward and backward, for every vertex, in float32.
    assert summary["bytes_per_epoch"]["stage"] == 2 * 60 * (8 + 8) * 4
    assert summary["bubble_theory"] == pytest.approx(1 / 5)
    assert summary["history_age_mean"] == 1.0 and 0 < summary["history_read_share"] < 1


def test_fit_trains_branches_on_stages_of_their_own(graph, folder):
    """SIGN by hop: each branch looks one hop further."""
    torch.manual_seed(1)
    hops = {f"hop{k}": [nn.Linear(5, 8), *(GCN(8, 8) for _ in range(k))] for k in range(2)}
    branches = {name: gnnpar.Branch(layers, inputs="features") for name, layers in hops.items()}
    branches["all"] = gnnpar.Branch([], inputs=tuple(hops), join="cat")
    model = gnnpar.LayerGraph(branches, decoder=nn.Linear(16, graph.num_classes))
    overrides = ["train.num_epochs=6", "train.eval_every=3", "train.lr=0.02", "run.dir=out"]
    result = gnnpar.fit(model, graph, "graphpipe", stages=3, chunks=2, overrides=overrides)
    assert result.summary["layers_per_stage"] == [1, 2, 1]
    # Of both hops the rows cross, forward and backward, for every vertex, in float32.
    assert result.summary["bytes_per_epoch"]["stage"] == 2 * 60 * (8 + 8) * 4
    with torch.no_grad():
        right = model.eval()(graph).argmax(1) == graph.y
    assert right[graph.test_mask].double().mean().item() == pytest.approx(result.test_accuracy)


SCRIPT = """
    import torch
    from torch import nn
    import gnnpar
    from beside import Halves
    from gnnpar.data import load

    class Doubles(gnnpar.Layer):
        operator = gnnpar.Pull("mean", self_loops=True)

        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(6))

        def after(self, z, h, carries, rows):
            return 2 * z + self.bias

    if __name__ == "__main__":
        graph = load("karate")
        layers = [Doubles(), Halves()]
        model = gnnpar.LayerStack(nn.Linear(graph.num_features, 6), layers, nn.Linear(6, graph.num_classes))
        overrides = ["train.num_epochs=3", "run.dir=out"]
        result = gnnpar.fit(model, graph, "full_batch", stages=2, overrides=overrides)
        assert bool(model.layers[0].bias.any()) and type(model.layers[0]) is Doubles
        print("best", result.best_epoch)
"""

MODULE = """
    import gnnpar

    class Halves(gnnpar.Layer):
        operator = gnnpar.Pull("sum")
        reads_input = True

        def after(self, z, h, carries, rows):
            return z / 2 + h
"""


def test_layers_may_be_defined_in_the_script_and_in_modules_beside_it(folder):
    place = folder / "elsewhere"
    place.mkdir()
    (place / "script.py").write_text(textwrap.dedent(SCRIPT))
    (place / "beside.py").write_text(textwrap.dedent(MODULE))
    root = str(Path(gnnpar.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": root}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(place / "script.py")],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("best ")
    assert (folder / "out" / "summary.json").exists() and not (folder / "out" / ".job").exists()


def test_graphs_of_pyg_are_taken_as_they_are(graph):
    geometric = pytest.importorskip("torch_geometric.data")
    masks = {f"{name}_mask": getattr(graph, f"{name}_mask") for name in ("train", "val", "test")}
    data = geometric.Data(edge_index=graph.edge_index, x=graph.x, y=graph.y, **masks)
    overrides = ["train.num_epochs=2", "seed=5"]
    results = [
        gnnpar.fit(stack(graph), given, "full_batch", overrides=overrides)
        for given in (graph, data, gnnpar.from_pyg(data))
    ]
    first, *others = (result.parameters for result in results)
    assert all(torch.equal(other[name], first[name]) for other in others for name in first)
    with pytest.raises(InputError, match="tuple is none; give"):
        gnnpar.fit(stack(graph), (graph.edge_index, graph.x))


def test_the_example_of_the_readme(folder):
    root = Path(gnnpar.__file__).parents[1]
    _, _, rest = (root / "README.md").read_text().partition("```python\n")
    example, _, _ = rest.partition("```")
    assert "train.num_epochs=20" in example
    check = """
assert logits.shape == (graph.num_nodes, graph.num_classes)
assert torch.equal(logits, model.eval()(graph))
"""
    (folder / "example.py").write_text(example.replace("num_epochs=20", "num_epochs=2") + check)
    done = subprocess.run(
        [sys.executable, "example.py"],
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr


DGL_SCRIPT = """
    from torch import nn
    import gnnpar
    from gnnpar.data import load
    from gnnpar.interop.dgl import import_dgl

    if __name__ == "__main__":
        dgl = import_dgl()
        graph = load("karate")
        layers = [dgl.nn.GraphConv(6, 6, allow_zero_in_degree=True), dgl.nn.SAGEConv(6, 6, "mean")]
        model = gnnpar.LayerStack(nn.Linear(graph.num_features, 6), layers, nn.Linear(6, graph.num_classes))
        overrides = ["train.num_epochs=2", "run.dir=out"]
        print("best", gnnpar.fit(model, graph, stages=2, chunks=2, overrides=overrides).best_epoch)
"""


def test_convolutions_of_dgl_reach_the_workers(folder):
    if importlib.util.find_spec("dgl") is None:
        pytest.skip("dgl is not installed")
    (folder / "script.py").write_text(textwrap.dedent(DGL_SCRIPT))
    done = subprocess.run(
        [sys.executable, "-W", "error", "script.py"],
        env=os.environ | {"PYTHONPATH": str(Path(gnnpar.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("best ") and (folder / "out" / "summary.json").exists()


def test_mistakes_are_raised_before_anything_is_written(graph, folder):
    x = graph.x.clone()
    x[0] = math.nan
    with pytest.raises(InputError) as caught:
        gnnpar.fit(stack(graph), graph.replace(x=x), chunks=61)
    assert len(caught.value.faults) == 2
    with pytest.raises(InputError, match="7 stages need at least as many layers"):
        gnnpar.fit(stack(graph), graph, stages=7)
    assert not (folder / "results").exists() and not (folder / "home").exists()


def test_keys_are_checked_with_the_nearest_offered(graph):
    with pytest.raises(InputError, match=r"train\.lrr: there is no such key; did you mean train\.lr"):
        gnnpar.fit(stack(graph), graph, overrides=["train.lrr=1"])
    with pytest.raises(InputError, match="did you mean gnnpipe"):
        gnnpar.fit(stack(graph), graph, "gnnpip")
