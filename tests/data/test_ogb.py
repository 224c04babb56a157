import gzip

import numpy as np
import pytest
from support.ogb_raw import N, content, write_binary, write_csv, write_text

from gnnpar import data
from gnnpar.config.schema import DatasetConfig
from gnnpar.data import ogb
from gnnpar.errors import InputError


def config(folder, name, **changes):
    return DatasetConfig(name=name, kind="ogb", path=str(folder), **changes)


@pytest.mark.parametrize("write", [write_text, write_binary])
@pytest.mark.parametrize("place", [".", "ogbn_mine"])
def test_both_layouts(tmp_path, write, place):
    found = content()
    found["node-label"][2, 0] = np.nan
    write(tmp_path / place, found, "time")
    graph = data.load(config(tmp_path, "ogbn-mine"))
    expected = {tuple(edge) for edge in found["edge"].tolist()}
    assert {tuple(edge) for edge in graph.edge_index.T.tolist()} == expected and graph.num_edges == len(
        expected
    )
    np.testing.assert_allclose(graph.x.numpy(), found["node-feat"], rtol=1e-6)
    assert graph.y.tolist() == [-1 if v != v else int(v) for v in found["node-label"][:, 0]]
    assert graph.train_mask.nonzero().flatten().tolist() == [0, 1, 3, 4, 5]  # vertex 2 has no label
    assert graph.val_mask.nonzero().flatten().tolist() == [6, 7, 8] and int(graph.test_mask.sum()) == 3


def test_the_recipe_of_the_index_is_followed(tmp_path):
    facts = ogb.ogb_facts("ogbn-products")
    assert facts == ogb.OgbFacts(inverse_edges=True, scheme="sales_ranking", num_classes=47)
    assert ogb.ogb_facts("ogbn-arxiv") == ogb.OgbFacts(scheme="time", num_classes=40)
    assert ogb.ogb_facts("ogbn-proteins").num_classes is None
    assert ogb.ogb_facts("ogbn-mine") == ogb.OgbFacts()
    write_text(tmp_path, content(), "sales_ranking")
    graph = data.load(config(tmp_path, "ogbn-products"))
    assert graph.is_symmetric and graph.num_classes == 47
    with pytest.raises(InputError, match="several types of vertices"):
        data.load(config(tmp_path, "ogbn-mag"))


def test_proteins_averages_edge_features(tmp_path):
    found = content(features=0, edge_features=2, tasks=5)
    write_text(tmp_path, found, "species")
    graph = data.load(config(tmp_path, "ogbn-proteins"))
    e = len(found["edge"])
    total, count = np.zeros((N, 2)), np.zeros((N, N))
    value = np.zeros((N, N, 2))
    for (u, v), attr in zip(found["edge"], found["edge-feat"][:e], strict=True):
        for a, b in ((u, v), (v, u)):
            value[b, a] += attr
            count[b, a] += 1
    mean = value / np.maximum(count, 1)[:, :, None]
    total = mean.sum(1) / np.maximum((count > 0).sum(1), 1)[:, None]
    np.testing.assert_allclose(graph.x.numpy(), total, rtol=1e-5)
    np.testing.assert_allclose(
        graph.edge_attr.numpy(), mean[graph.destinations.numpy(), graph.indices.numpy()], rtol=1e-5
    )
    assert graph.multi_label and graph.num_classes == 5 and graph.y.tolist() == found["node-label"].tolist()


def test_symmetrised_where_the_configuration_says_so(tmp_path):
    write_text(tmp_path / "arxiv", content(), "time")
    graph = data.load("ogbn-arxiv", path=str(tmp_path))
    assert graph.is_symmetric and graph.num_classes == 40


def test_blocks_are_joined(tmp_path, monkeypatch):
    from gnnpar.data import tables

    monkeypatch.setattr(tables, "_CELLS", 7)
    for name, write in (("text", write_text), ("binary", write_binary)):
        found = content()
        graph = data.load(config(write(tmp_path / name, found, "time"), "ogbn-mine"))
        np.testing.assert_allclose(graph.x.numpy(), found["node-feat"], rtol=1e-6)
        assert graph.num_edges == len(found["edge"])


def damage(path, how):
    text = path.read_bytes()
    if how == "truncate":
        path.write_bytes(text[: len(text) // 2])
    elif how == "remove":
        path.unlink()
    elif how == "short":
        write_csv(path, np.zeros((4, 2)))
    else:
        with gzip.open(path, "wt") as file:
            file.write("a,b\nc,d\n")


@pytest.mark.parametrize("name", ["edge", "node-feat", "node-label", "num-node-list"])
@pytest.mark.parametrize("how", ["truncate", "remove", "short", "words"])
def test_damaged_tables_are_named(tmp_path, own_home, name, how):
    write_text(tmp_path, content(), "time")
    damage(tmp_path / "raw" / f"{name}.csv.gz", how)
    if (name, how) == ("node-feat", "remove"):
        assert data.load(config(tmp_path, "ogbn-mine")).num_features > 0  # made from degrees
        return
    with pytest.raises(InputError, match=rf"{name}|features: 4 rows for 12|holds 8 graphs"):
        data.load(config(tmp_path, "ogbn-mine"))
    assert not [path for path in (own_home / "stores").iterdir() if path.is_dir()]


def test_a_damaged_binary_file_is_named(tmp_path):
    write_binary(tmp_path, content(), "time")
    damage(tmp_path / "raw" / "data.npz", "truncate")
    with pytest.raises(InputError, match=r"data.npz: truncated or corrupt"):
        data.load(config(tmp_path, "ogbn-mine"))


def test_split_faults(tmp_path):
    found = content()
    found["split"]["train"] = np.array([0, N, -1])
    write_text(tmp_path / "ids", found, "time")
    with pytest.raises(InputError, match=r"train.csv.gz: 2 ids outside 0..11"):
        data.load(config(tmp_path / "ids", "ogbn-mine"))
    write_text(tmp_path / "scheme", content(), "random")
    with pytest.raises(InputError, match=r"no split time in .* which has \['random'\]"):
        data.load(config(tmp_path / "scheme", "ogbn-arxiv"))


def test_too_little_memory_is_told_before_reading(tmp_path, monkeypatch):
    from gnnpar.data import home

    write_text(tmp_path, content(), "time")
    (tmp_path / "raw" / "edge.csv.gz").unlink()  # reading would fail on this one
    monkeypatch.setattr(home, "_available_memory", lambda: 100)
    with pytest.raises(InputError, match=r"needs about .* GiB of memory"):
        data.load(config(tmp_path, "ogbn-mine"))


def test_a_folder_without_raw_says_what_to_do(tmp_path):
    with pytest.raises(InputError, match=r"no folder raw/.*gnnpar data fetch ogbn-arxiv"):
        data.load("ogbn-arxiv", path=str(tmp_path))
    with pytest.raises(InputError, match="gnnpar data fetch ogbn-arxiv"):
        data.load("ogbn-arxiv")


def test_writing_to_features_stays_in_this_process(tmp_path):
    graph = data.load(config(write_text(tmp_path, content(), "time"), "ogbn-mine"))
    graph.x[0, 0] = 5  # copy-on-write: allowed, and seen by nobody else
    assert data.load(config(tmp_path, "ogbn-mine")).x[0, 0] != 5
