"""`gnnpar partition`: table and JSON, the file, the cache, and mistakes."""

import json

import numpy as np
import pytest

from gnnpar import data
from gnnpar.cli.partition import main
from gnnpar.config import compose
from gnnpar.errors import InputError
from gnnpar.partition import build, load_partition
from tests.partition.graphs import planted


@pytest.fixture
def keys(tmp_path, monkeypatch):
    """Overrides that name a graph on disk."""
    monkeypatch.setenv("GNNPAR_DATA", str(tmp_path / "home"))
    graph = planted()
    n = graph.num_nodes
    np.savez(
        tmp_path / "graph.npz",
        num_nodes=n,
        edge_index=graph.edge_index.numpy().astype(np.int32),
        x=np.ones((n, 2), np.float32),
        y=np.arange(n) % 3,
        train_mask=np.arange(n) % 4 == 0,
        val_mask=np.arange(n) % 4 == 1,
        test_mask=np.arange(n) % 4 == 2,
    )
    return ["dataset=npz", f"dataset.path={tmp_path / 'graph.npz'}"]


def test_json_file_and_cache(keys, tmp_path, capsys, monkeypatch):
    request = [*keys, "batch.num_chunks=4", "partition.method=ldg", "format=json"]
    assert main([*request, f"out={tmp_path / 'parts.npz'}"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["num_parts"] == 4 and sum(first["vertices"]) == 240 and first["cut_share"] < 0.3
    graph = data.load(compose(keys).dataset)
    assert load_partition(tmp_path / "parts.npz", graph).fingerprint == first["fingerprint"]
    monkeypatch.setattr(build, "_cut", None)  # a second cut would fail
    assert main(request) == 0
    assert json.loads(capsys.readouterr().out) == first


def test_table(keys, capsys):
    assert main([*keys, "batch.num_chunks=3", "partition.method=range"]) == 0
    out = capsys.readouterr().out
    assert "max/mean" in out and "replication" in out and "240 vertices" in out


def test_mistakes(keys):
    with pytest.raises(InputError, match="choose table or json"):
        main([*keys, "format=yaml"])
    with pytest.raises(InputError, match=r"partition\.methd"):
        main([*keys, "partition.methd=ldg"])
    with pytest.raises(InputError, match=r"241 parts, but .* has only 240 vertices"):
        main([*keys, "batch.num_chunks=241"])


def test_help(capsys):
    assert main(["--help"]) == 0
    assert "usage: gnnpar partition" in capsys.readouterr().out
