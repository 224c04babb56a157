import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from gnnpar import data
from gnnpar.config.schema import DatasetConfig
from gnnpar.data.load import load_store
from gnnpar.errors import InputError
from gnnpar.graph.features import SparseRows


def arrays(n=30, e=120, sparse=False, seed=0):
    """A sound file in the gnnpar layout."""
    rng = np.random.default_rng(seed)
    part = np.arange(n) % 4
    found = {
        "num_nodes": n,
        "edge_index": rng.integers(0, n, (2, e)).astype(np.int32),
        "y": (np.arange(n) % 3).astype(np.int8),
        "train_mask": part == 0,
        "val_mask": part == 1,
        "test_mask": part == 2,
    }
    x = rng.random((n, 5)).astype(np.float32) * (rng.random((n, 5)) < 0.6)
    if sparse:
        csr = sp.csr_matrix(x)
        found |= {"x_indptr": csr.indptr, "x_indices": csr.indices, "x_data": csr.data, "x_shape": x.shape}
    else:
        found["x"] = x
    return found


def write(tmp_path, found):
    path = tmp_path / "graph.npz"
    np.savez_compressed(path, **found)
    return path


def config(path, **changes):
    return DatasetConfig(name="npz", kind="npz", path=str(path), **changes)


@pytest.mark.parametrize("sparse", [True, False])
def test_load_equals_the_file(tmp_path, sparse):
    found = arrays(sparse=sparse)
    graph = data.load(config(write(tmp_path, found)))
    expected = sp.coo_matrix((np.ones(120), found["edge_index"][::-1]), shape=(30, 30)).tocsr()
    assert np.array_equal(graph.indptr.numpy(), expected.indptr)
    assert np.array_equal(graph.indices.numpy(), expected.indices)
    x = graph.x.to_dense() if sparse else graph.x
    assert isinstance(graph.x, SparseRows) == sparse
    reference = sp.csr_matrix((found["x_data"], found["x_indices"], found["x_indptr"])) if sparse else None
    assert np.array_equal(x.numpy(), reference.toarray() if sparse else found["x"])
    assert graph.name == "graph" and graph.num_classes == 3 and graph.y.tolist() == found["y"].tolist()
    assert graph.train_mask.tolist() == found["train_mask"].tolist()
    assert data.load(config(write(tmp_path, found))).fingerprint == graph.fingerprint


@pytest.mark.parametrize("sparse", [True, False])
def test_row_normalisation(tmp_path, sparse):
    path = write(tmp_path, arrays(sparse=sparse))
    plain, normal = (data.load(config(path, normalize=how)).x for how in ("none", "row"))
    plain, normal = (x.to_dense() if sparse else x for x in (plain, normal))
    total = plain.sum(1, keepdim=True)
    assert bool((total == 0).any())
    torch.testing.assert_close(normal, torch.where(total > 0, plain / total, plain))


def test_symmetrize_and_edge_values(tmp_path):
    found = arrays() | {
        "edge_index": np.array([[0, 1, 2], [1, 0, 3]]),
        "edge_weight": np.array([1.0, 3.0, 5.0]),
        "edge_attr": np.array([[1.0], [3.0], [5.0]]),
    }
    graph = data.load(config(write(tmp_path, found), symmetrize=True))
    assert graph.edge_index.T.tolist() == [[1, 0], [0, 1], [3, 2], [2, 3]]
    assert graph.edge_weight.tolist() == [2, 2, 5, 5] and graph.edge_attr.flatten().tolist() == [2, 2, 5, 5]


def test_several_splits_and_none(tmp_path):
    found = arrays()
    masks = {key: found.pop(key) for key in ("train_mask", "val_mask", "test_mask")}
    many = found | {key + "s": np.stack([mask, np.roll(mask, 1)]) for key, mask in masks.items()}
    path = write(tmp_path, many)
    graph = data.load(config(path, split=1))
    assert graph.train_mask.tolist() == np.roll(masks["train_mask"], 1).tolist()
    with pytest.raises(InputError, match=r"dataset.split=2: must lie in 0..1"):
        data.load(config(path, split=2))
    path = write(tmp_path, found)
    first, second, again = (data.load(config(path, split=split)) for split in (0, 1, 0))
    assert torch.equal(first.train_mask, again.train_mask)
    assert not torch.equal(first.train_mask, second.train_mask)
    total = first.train_mask.int() + first.val_mask.int() + first.test_mask.int()
    assert bool((total == 1).all()) and int(first.train_mask.sum()) == 18
    for label in range(3):
        assert int(first.train_mask[first.y == label].sum()) == 6


def test_a_changed_file_is_converted_again(tmp_path):
    first = data.load(config(write(tmp_path, arrays(seed=0))))
    second = data.load(config(write(tmp_path, arrays(seed=1))))
    assert first.fingerprint != second.fingerprint


def test_unlabelled_vertices_leave_the_masks(tmp_path):
    found = arrays()
    found["y"][0] = -1
    assert found["train_mask"][0]
    graph = data.load(config(write(tmp_path, found)))
    assert not graph.train_mask[0] and int(graph.train_mask.sum()) == found["train_mask"].sum() - 1


def test_missing_features_become_degrees_with_a_warning(tmp_path, caplog):
    found = arrays()
    del found["x"]
    path = write(tmp_path, found)
    graph = data.load(config(path, symmetrize=True))
    degree = graph.in_degree + graph.out_degree
    assert graph.x.to_dense().argmax(1).tolist() == torch.log2(degree + 1.0).int().tolist()
    assert "has no vertex features" in caplog.text


def test_features_can_be_chosen(tmp_path):
    path = write(tmp_path, arrays())

    def graph(features, **changes):
        values = dataclasses.asdict(config(path, **changes)) | {"features": features}
        return data.load(SimpleNamespace(**values))

    assert graph("random", num_features=7).x.shape == (30, 7) and graph("given").num_features == 5
    assert torch.equal(graph("random").x, graph("random").x)
    assert not torch.equal(graph("random").x, graph("random", seed=1).x)
    assert bool((graph("degree").x.to_dense().sum(1) == 1).all())
    found = arrays()
    del found["x"]
    write(tmp_path, found)
    with pytest.raises(InputError, match=r"dataset.features=degree .* or dataset.features=random"):
        graph("given")


def test_a_copied_store_is_read_without_its_source(tmp_path):
    path = write(tmp_path, arrays())
    graph = data.load(config(path, symmetrize=True, split=0))
    store = load_store(config(path, symmetrize=True)).folder
    copy = store.rename(tmp_path / "copy")
    path.unlink()
    again = data.load(config(copy, symmetrize=True))
    assert again.fingerprint == graph.fingerprint and again.name == "graph"
    with pytest.raises(InputError, match=r"converted with dataset.symmetrize=True, not False"):
        data.load(config(copy))
    (copy / "y.npy").write_bytes(b"")
    with pytest.raises(InputError, match=r"y.npy: truncated"):
        data.load(config(copy, symmetrize=True))


def test_multi_label(tmp_path):
    y = np.random.default_rng(0).integers(0, 2, (30, 4)).astype(np.float32)
    y[3, 2] = np.nan
    graph = data.load(config(write(tmp_path, arrays() | {"y": y})))
    assert graph.multi_label and graph.num_classes == 4
    np.testing.assert_array_equal(graph.y.numpy(), y)


def test_every_fault_is_listed_at_once(tmp_path, own_home):
    found = arrays()
    found["edge_index"][0, 5] = 30
    found["x"][2, 1] = np.nan
    found["x"][9, 0] = np.inf
    found["y"][4] = -3
    found["val_mask"][0] = True
    with pytest.raises(InputError) as error:
        data.load(config(write(tmp_path, found)))
    text = str(error.value)
    assert "5 faults" not in text and len(error.value.faults) == 4
    assert "edge_index: 1 ids out of range 0..29, the first are [30]" in text
    assert "features: 2 values are NaN or infinite, the first in rows [2, 9]" in text
    assert "labels: 1 outside 0..2" in text and "vertices [4] with values [-3]" in text
    assert "train_mask and val_mask overlap in 1 vertices, the first are vertices [0]" in text
    assert not [path for path in (own_home / "stores").iterdir() if path.is_dir()]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f["train_mask"].fill(False), "no vertex is selected"),
        (lambda f: f["y"].__setitem__(7, 90), "only 4 classes occur"),
        (lambda f: f["y"].fill(-1), "no vertex has one"),
        (lambda f: f.update(y=f["y"][:9]), "labels: 9 rows for 30 vertices"),
        (lambda f: f.update(num_classes=2), "outside 0..1"),
        (lambda f: f.update(edge_weight=np.full(120, np.inf)), "edge_weight: 120 values"),
        (lambda f: f.update(y=np.full(30, 0.5)), "must be integers"),
        (lambda f: f.update(edge_index=np.zeros((2, 3))), "must be integers"),
        (lambda f: f.update(x=np.ones((9, 2))), "features: 9 rows for 30 vertices"),
        (lambda f: f.update(num_nodes=10), "labels: 30 rows for 10 vertices"),
        (lambda f: f.pop("y"), "no array"),
        (lambda f: f.pop("val_mask"), "no array"),
        (lambda f: f.update(edge_index=np.array([None, {}], dtype=object)), "pickle"),
    ],
)
def test_single_faults(tmp_path, change, message):
    found = arrays()
    change(found)
    with pytest.raises(InputError, match=message):
        data.load(config(write(tmp_path, found)))


def test_row_normalisation_refuses_negative_features(tmp_path):
    for sparse in (True, False):
        found = arrays(sparse=sparse)
        found["x_data" if sparse else "x"][0] = -1
        with pytest.raises(InputError, match="needs features >= 0"):
            data.load(config(write(tmp_path, found), normalize="row"))


@pytest.mark.parametrize(
    "change",
    [
        lambda f: f["x_indptr"].__setitem__(-1, 7),
        lambda f: f["x_indptr"].__setitem__(0, 1),
        lambda f: f["x_indptr"].__setitem__(3, 10_000),
        lambda f: f.update(x_data=f["x_data"][:-1]),
    ],
)
def test_faulty_sparse_features(tmp_path, change):
    found = arrays(sparse=True)
    change(found)
    with pytest.raises(InputError, match="do not fit together"):
        data.load(config(write(tmp_path, found)))


def test_feature_columns_out_of_range_and_unsorted(tmp_path):
    found = arrays(sparse=True)
    found["x_indices"][0] = 5
    with pytest.raises(InputError, match=r"feature column: 1 ids out of range 0..4"):
        data.load(config(write(tmp_path, found)))
    found = arrays(sparse=True)
    plain = data.load(config(write(tmp_path, found))).x
    for start, stop in zip(found["x_indptr"][:-1], found["x_indptr"][1:], strict=True):
        for key in ("x_indices", "x_data"):
            found[key][start:stop] = found[key][start:stop][::-1].copy()
    again = data.load(config(write(tmp_path, found))).x
    assert torch.equal(again.indices, plain.indices) and torch.equal(again.values, plain.values)


@pytest.mark.parametrize("damage", ["half", "middle", "empty", "text"])
def test_a_damaged_file_is_one_clear_error(tmp_path, damage):
    path = write(tmp_path, arrays(n=3000, e=9000))
    content = bytearray(path.read_bytes())
    if damage == "half":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "middle":
        middle = len(content) // 2
        content[middle : middle + 64] = bytes(64)
        path.write_bytes(content)
    else:
        path.write_bytes(b"" if damage == "empty" else b"hello")
    with pytest.raises(InputError, match=r"dataset file .*graph.npz"):
        data.load(config(path))


def test_not_on_disk_says_how_to_get_it(tmp_path):
    with pytest.raises(InputError, match=r"nothing to read at .*missing\.npz; correct dataset.path"):
        data.load(config(tmp_path / "missing.npz"))
    with pytest.raises(InputError, match="gnnpar data fetch chameleon"):
        data.load("chameleon")
    with pytest.raises(InputError, match="save_npz"):
        data.load("cora")


def test_pickled_planetoid_files_are_refused(tmp_path):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "ind.cora.x").write_bytes(b"\x80\x04")
    with pytest.raises(InputError, match=r"pickles \(ind.cora.x.*from_pyg"):
        data.load("cora", path=str(tmp_path))


@pytest.mark.parametrize("sparse", [True, False])
def test_save_npz_round_trip(tmp_path, sparse):
    graph = data.load(config(write(tmp_path, arrays(sparse=sparse) | {"edge_weight": np.arange(120.0)})))
    data.save_npz(graph, tmp_path / "saved.npz")
    again = data.load(config(tmp_path / "saved.npz"))
    assert again.fingerprint == graph.fingerprint and torch.equal(again.edge_weight, graph.edge_weight)
    x, y = (g.x.to_dense() if sparse else g.x for g in (again, graph))
    assert torch.equal(x, y) and torch.equal(again.y, graph.y)
    assert torch.equal(again.train_mask, graph.train_mask) and again.num_classes == graph.num_classes


def test_gnn_benchmark_layout(tmp_path):
    adjacency = sp.csr_matrix(np.array([[0, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]]))
    x = sp.csr_matrix(np.eye(4)[:, ::-1])
    found = {"labels": np.array([0, 1, 0, 1]), "node_names": np.array(["a", None], dtype=object)}
    for name, matrix in (("adj", adjacency), ("attr", x)):
        found |= {f"{name}_{key}": getattr(matrix, key) for key in ("indptr", "indices", "data", "shape")}
    graph = data.load(config(write(tmp_path, found)))
    assert graph.edge_index.T.tolist() == [[1, 0], [0, 1], [2, 1], [1, 2], [3, 2], [2, 3]]
    assert torch.equal(graph.x.to_dense(), torch.eye(4).flip(1))


def test_heterophilous_layout(tmp_path):
    masks = np.zeros((2, 3), bool)
    found = {
        "edges": np.array([[0, 1], [1, 2]]),
        "node_features": np.ones((3, 2)),
        "node_labels": np.array([0, 1, 1]),
        "train_masks": masks | [True, False, False],
        "val_masks": masks | [False, True, False],
        "test_masks": masks,
    }
    graph = data.load(config(write(tmp_path, found), split=1))
    assert graph.num_edges == 4 and graph.val_mask.tolist() == [False, True, False]


def test_saint_and_reddit_folders(tmp_path):
    import json

    folder = tmp_path / "saint"
    folder.mkdir()
    matrix = sp.csr_matrix(np.array([[0, 1, 1], [1, 0, 0], [1, 0, 0]]))
    np.savez(
        folder / "adj_full.npz", **{k: getattr(matrix, k) for k in ("indptr", "indices", "data", "shape")}
    )
    np.save(folder / "feats.npy", np.arange(6.0).reshape(3, 2))
    (folder / "class_map.json").write_text(json.dumps({"0": 1, "1": 0, "2": 1}))
    (folder / "role.json").write_text(json.dumps({"tr": [0, 1], "va": [2], "te": []}))
    graph = data.load("flickr", path=str(folder))
    assert graph.y.tolist() == [1, 0, 1] and graph.train_mask.tolist() == [True, True, False]
    assert graph.num_edges == 4 and graph.x.tolist() == [[0, 1], [2, 3], [4, 5]]

    folder = tmp_path / "reddit"
    folder.mkdir()
    np.savez(folder / "reddit_data.npz", feature=np.ones((3, 2)), label=[0, 1, 0], node_types=[1, 2, 3])
    np.savez(folder / "reddit_graph.npz", row=[0, 1], col=[1, 2], data=[1, 1], shape=(3, 3))
    graph = data.load("reddit", path=str(folder))
    assert graph.num_edges == 4 and graph.test_mask.tolist() == [False, False, True]


README = {
    "ogbn-arxiv": (169343, 1166243, 40, 40, (90941, 29799, 48603), 0.655),
    "flickr-nofeat": (89250, 899756, None, 7, (44625, 22312, 22313), 0.319),
    "wordnet-lexname": (117659, 349164, 2000, 45, (70595, 23532, 23532), 0.741),
    "debian-packages": (63436, 590600, 2000, 58, (38061, 12687, 12688), 0.467),
    "coauthor-physics": (34493, 495924, 8415, 5, None, 0.931),
    "pubmed": (19717, 88648, 500, 3, (60, 500, 1000), 0.802),
    "amazon-computers": (13752, 491722, 767, 10, None, 0.777),
    "minesweeper": (10000, 78804, 7, 2, (5000, 2500, 2500), 0.683),
    "squirrel": (5201, 396706, 2089, 5, (2496, 1664, 1041), 0.222),
    "citeseer": (3327, 9104, 3703, 6, (120, 500, 1000), 0.736),
    "cora": (2708, 10556, 1433, 7, (140, 500, 1000), 0.810),
    "chameleon": (2277, 62742, 2325, 5, (1092, 729, 456), 0.230),
}


@pytest.mark.parametrize("name", README)
def test_every_shared_graph(shared_data, name):
    num_nodes, num_edges, num_features, num_classes, split, homophily = README[name]
    graph = data.load(config(shared_data / f"{name}.npz"))
    assert (graph.num_nodes, graph.num_edges, graph.num_classes) == (num_nodes, num_edges, num_classes)
    assert num_features is None or graph.num_features == num_features
    counts = tuple(int(mask.sum()) for mask in (graph.train_mask, graph.val_mask, graph.test_mask))
    assert counts == split or (split is None and sum(counts) == num_nodes and counts[0] > counts[1])
    same = graph.y[graph.indices.long()] == graph.y[graph.destinations]
    assert round(float(same.double().mean()), 3) == pytest.approx(homophily, abs=1.01e-3)
    assert graph.is_symmetric == (name != "ogbn-arxiv") and data.load(config(shared_data / f"{name}.npz"))
    whole = data.load(config(shared_data / f"{name}.npz", symmetrize=True))
    assert whole.is_symmetric and (whole.num_edges == num_edges or name == "ogbn-arxiv")
    card = data.find_card(name)
    if card is not None and name != "ogbn-arxiv":
        assert (card.num_nodes, card.num_edges, card.num_classes) == (num_nodes, num_edges, num_classes)
