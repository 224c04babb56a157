import numpy as np
import pytest
import scipy.sparse as sp
import torch

from gnnpar.errors import InputError
from gnnpar.graph.features import SparseRows
from gnnpar.graph.graph import Graph


def random_graph(n=40, e=300, seed=0, sparse=False, weights=True):
    """Random directed graph with self loops, duplicates, features, labels and masks."""
    gen = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 5, generator=gen)
    if sparse:
        csr = sp.csr_matrix(x.numpy() * (x.numpy() > 0.5))
        x = SparseRows(
            torch.from_numpy(csr.indptr.astype(np.int64)),
            torch.from_numpy(csr.indices),
            torch.from_numpy(csr.data),
            5,
        )
    part = torch.randint(0, 4, (n,), generator=gen)
    return Graph.from_edge_index(
        torch.randint(0, n, (2, e), generator=gen),
        num_nodes=n,
        x=x,
        y=torch.randint(0, 3, (n,), generator=gen),
        train_mask=part == 0,
        val_mask=part == 1,
        test_mask=part == 2,
        edge_weight=torch.rand(e, generator=gen) if weights else None,
        edge_attr=torch.rand(e, 2, generator=gen) if weights else None,
    )


def adjacency(graph, value=None):
    """Scipy matrix A[destination, source]."""
    data = np.ones(graph.num_edges) if value is None else value.numpy()
    return sp.csr_matrix((data, graph.indices.numpy(), graph.indptr.numpy()), shape=(graph.num_nodes,) * 2)


def rows_ascending(graph):
    inner = torch.ones(graph.num_edges, dtype=torch.bool)
    inner[graph.indptr[:-1][graph.in_degree > 0]] = False
    return bool((graph.indices[1:] >= graph.indices[:-1])[inner[1:]].all())


def test_rows_list_sources_and_duplicates_are_summed():
    edges = torch.tensor([[2, 0, 2, 1], [1, 1, 1, 0]])
    graph = Graph.from_edge_index(edges, num_nodes=3, edge_weight=torch.tensor([1.0, 2.0, 4.0, 8.0]))
    assert graph.indptr.tolist() == [0, 1, 3, 3]
    assert graph.indices.tolist() == [1, 0, 2] and graph.indices.dtype == torch.int32
    assert graph.edge_weight.tolist() == [8.0, 2.0, 5.0]
    kept = Graph.from_edge_index(edges, num_nodes=3, edge_weight=torch.arange(4.0), coalesce=False)
    assert kept.indices.tolist() == [1, 0, 2, 2] and kept.edge_weight.tolist() == [3.0, 1.0, 0.0, 2.0]


@pytest.mark.parametrize("weights", [True, False])
def test_from_edge_index_equals_scipy(weights):
    gen = torch.Generator().manual_seed(1)
    edges = torch.randint(0, 50, (2, 600), generator=gen)
    w = torch.rand(600, generator=gen, dtype=torch.float64)
    graph = Graph.from_edge_index(edges, num_nodes=50, edge_weight=w if weights else None)
    expected = sp.coo_matrix((w.numpy(), (edges[1].numpy(), edges[0].numpy())), shape=(50, 50)).tocsr()
    assert np.array_equal(graph.indptr.numpy(), expected.indptr)
    assert np.array_equal(graph.indices.numpy(), expected.indices)
    if weights:
        np.testing.assert_allclose(graph.edge_weight.numpy(), expected.data, rtol=1e-13)


@pytest.mark.parametrize("seed", range(3))
def test_symmetrize_equals_scipy(seed):
    graph = random_graph(seed=seed)
    result = graph.symmetrize()
    a = adjacency(graph)
    pattern = ((a + a.T) > 0).astype(float)
    assert (adjacency(result) != pattern).nnz == 0
    assert result.is_symmetric and rows_ascending(result)
    for before, after in [
        (graph.edge_weight, result.edge_weight),
        (graph.edge_attr[:, 1], result.edge_attr[:, 1]),
    ]:
        values = adjacency(graph, before)
        mean = (values + values.T).toarray() / np.maximum((a + a.T).toarray(), 1)
        np.testing.assert_allclose(adjacency(result, after).toarray(), mean, rtol=1e-6)
    assert result.symmetrize() is result
    assert result.y is graph.y and result.train_mask is graph.train_mask


def test_symmetrize_coalesces_a_symmetric_multigraph():
    graph = Graph.from_edge_index(torch.tensor([[0, 0, 1, 1], [1, 1, 0, 0]]), num_nodes=2, coalesce=False)
    assert graph.symmetrize().num_edges == 2


@pytest.mark.parametrize("sparse", [True, False])
def test_permute_carries_everything(sparse):
    graph = random_graph(sparse=sparse)
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(3))
    result = graph.permute(order)
    pick = order.numpy()
    for before, after in [
        (None, None),
        (graph.edge_weight, result.edge_weight),
        (graph.edge_attr[:, 0], result.edge_attr[:, 0]),
    ]:
        expected = adjacency(graph, before)[pick][:, pick]
        assert (adjacency(result, after) != expected).nnz == 0
    assert rows_ascending(result)
    dense = [g.x.to_dense() if sparse else g.x for g in (graph, result)]
    assert torch.equal(dense[1], dense[0][order])
    for key in ("y", "train_mask", "val_mask", "test_mask", "node_ids"):
        assert torch.equal(getattr(result, key), getattr(graph, key)[order]), key
    assert result.fingerprint != graph.fingerprint
    back = result.permute(torch.argsort(order))
    assert torch.equal(back.indices, graph.indices) and torch.equal(back.edge_weight, graph.edge_weight)
    assert torch.equal(back.node_ids, torch.arange(graph.num_nodes)) and back.fingerprint == graph.fingerprint


def test_permute_refuses_what_is_no_permutation():
    graph = random_graph()
    for order in (torch.arange(39), torch.zeros(40, dtype=torch.int64), torch.arange(1, 41)):
        with pytest.raises(InputError, match="exactly once"):
            graph.permute(order)


def test_to_dtype_casts_numbers_but_not_labels():
    graph = random_graph(sparse=True).to_dtype(torch.float64)
    assert graph.x.dtype == graph.edge_weight.dtype == graph.edge_attr.dtype == torch.float64
    assert graph.y.dtype == torch.int64 and graph.indices.dtype == torch.int32


def test_from_edge_index_names_every_fault():
    with pytest.raises(InputError) as error:
        Graph.from_edge_index(torch.tensor([[0, 5], [1, -1]]), num_nodes=3, edge_weight=torch.ones(3))
    assert "1 edges outside 0..2" in str(error.value) and "5 → -1" in str(error.value)
    assert "edge_weight: 3 rows" in str(error.value)
    with pytest.raises(InputError, match=r"\[2, E\]"):
        Graph.from_edge_index(torch.zeros(3, 4, dtype=torch.int64))


def test_empty_and_multi_label_graphs():
    empty = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), num_nodes=4)
    assert empty.num_edges == 0 and empty.y.tolist() == [-1] * 4 and empty.num_classes == 0
    assert empty.symmetrize().num_edges == 0
    assert empty.permute(torch.tensor([3, 2, 1, 0])).node_ids.tolist() == [3, 2, 1, 0]
    multi = Graph.from_edge_index(torch.tensor([[0], [1]]), y=torch.zeros(2, 6))
    assert multi.multi_label and multi.num_classes == 6 and multi.num_nodes == 2


def test_a_graph_is_shown_in_a_line():
    graph = Graph.from_edge_index(
        [[0, 1], [1, 2]], x=torch.ones(3, 2), y=torch.tensor([0, 1, 1]), name="path"
    )
    assert repr(graph) == "Graph(path: 3 vertices, 2 edges, 2 features, 2 classes)"
