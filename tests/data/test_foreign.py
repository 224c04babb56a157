import warnings

import numpy as np
import pytest
import torch

from gnnpar import data
from gnnpar.errors import InputError
from gnnpar.graph.features import SparseRows


@pytest.fixture(scope="module")
def pyg():
    """`torch_geometric.data`, whose first import warns about torch.jit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch_geometric.data

    return torch_geometric.data


class FakeDGL:
    """What `from_dgl` reads of a DGLGraph."""

    is_homogeneous = True

    def __init__(self, src, dst, num_nodes, ndata, edata):
        self._edges, self._num_nodes = (src, dst), num_nodes
        self.ndata, self.edata = ndata, edata

    def edges(self, order):
        assert order == "eid"
        return self._edges

    def num_nodes(self):
        return self._num_nodes


def test_pyg_data(pyg):
    edge_index = torch.tensor([[2, 0, 1], [0, 1, 2]])
    masks = torch.tensor([[True, False], [False, True], [False, False]])
    given = pyg.Data(
        x=torch.eye(3),
        edge_index=edge_index,
        y=torch.tensor([[0], [1], [2]]),
        edge_attr=torch.tensor([3.0, 1.0, 2.0]),
        train_mask=masks,
        val_mask=masks.flip(1),
        test_mask=torch.zeros(3, 2, dtype=torch.bool),
    )
    graph = data.from_pyg(given, split=1)
    assert torch.equal(graph.edge_index, edge_index) and graph.edge_weight.tolist() == [3, 1, 2]
    assert graph.y.tolist() == [0, 1, 2] and graph.train_mask.tolist() == [False, True, False]
    with pytest.raises(InputError, match=r"must lie in 0\.\.1"):
        data.from_pyg(given, split=2)
    with pytest.raises(InputError, match="homogeneous"):
        data.from_pyg(pyg.HeteroData())


def test_pyg_sparse_features_and_no_split(pyg):
    x = torch.tensor([[0.0, 2.0], [1.0, 0.0], [0.0, 0.0]])
    given = pyg.Data(
        x=x.to_sparse(), edge_index=torch.tensor([[0], [1]]), y=torch.tensor([0, 1, 0]), num_nodes=3
    )
    graph = data.from_pyg(given)
    assert isinstance(graph.x, SparseRows) and torch.equal(graph.x.to_dense(), x)
    assert int((graph.train_mask.int() + graph.val_mask.int() + graph.test_mask.int()).sum()) == 3


def test_dgl_graph():
    src, dst = torch.tensor([2, 0, 1]), torch.tensor([0, 1, 2])
    mask = torch.tensor([1, 0, 0], dtype=torch.uint8)
    ndata = {"feat": torch.eye(3), "label": torch.tensor([1, 0, 1]), "train_mask": mask}
    graph = data.from_dgl(FakeDGL(src, dst, 3, ndata, {"weight": torch.tensor([3.0, 1.0, 2.0])}))
    assert torch.equal(graph.edge_index, torch.stack([src, dst])) and graph.edge_weight.tolist() == [3, 1, 2]
    assert graph.train_mask.tolist() == [True, False, False] and not bool(graph.val_mask.any())
    with pytest.raises(InputError, match="homogeneous"):
        data.from_dgl(object())


def test_any_of_the_three_kinds_is_a_graph():
    geometric = pytest.importorskip("torch_geometric.data")
    edges = torch.tensor([[0, 1], [1, 2]])
    given = geometric.Data(edge_index=edges, x=torch.rand(3, 2), y=torch.tensor([0, 1, 0]))
    graph = data.as_graph(given)
    assert graph.num_edges == 2 and torch.equal(graph.x, given.x) and data.as_graph(graph) is graph
    for wrong in (geometric.HeteroData(), edges, None):
        with pytest.raises(InputError, match=r"a gnnpar Graph, a homogeneous PyG Data .* DGLGraph"):
            data.as_graph(wrong)


def test_real_dgl_graph():
    from gnnpar.interop.dgl import import_dgl

    try:
        dgl = import_dgl()
    except InputError as error:
        pytest.skip(str(error))
    src, dst = torch.tensor([2, 0, 1, 1]), torch.tensor([0, 1, 2, 0])
    given = dgl.graph((src, dst), num_nodes=4)
    given.ndata["feat"], given.ndata["label"] = torch.rand(4, 3), torch.tensor([0, 1, 0, 1])
    given.edata["weight"] = torch.tensor([2.0, 3.0, 4.0, 5.0])
    graph = data.as_graph(given)
    assert graph.edge_index.T.tolist() == [[1, 0], [2, 0], [0, 1], [1, 2]]
    assert graph.edge_weight.tolist() == [5, 2, 3, 4] and torch.equal(graph.x, given.ndata["feat"])
    with pytest.raises(InputError, match="homogeneous"):
        data.from_dgl(dgl.heterograph({("a", "x", "b"): ([0], [0])}))


def test_saved_pyg_graph_is_read_by_name(tmp_path, pyg):
    rng = np.random.default_rng(0)
    given = pyg.Data(
        x=torch.rand(20, 4), edge_index=torch.from_numpy(rng.integers(0, 20, (2, 50))), y=torch.arange(20) % 7
    )
    data.save_npz(data.from_pyg(given), tmp_path / "cora.npz")
    graph = data.load("cora", path=str(tmp_path))
    assert graph.is_symmetric and graph.num_classes == 7
    torch.testing.assert_close(graph.x, given.x / given.x.sum(1, keepdim=True))
