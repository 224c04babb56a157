import numpy as np
import torch
from scipy.spatial.distance import cdist

from gnnpar import data
from gnnpar.graph.validate import validate


def test_karate():
    graph = data.load("karate")
    assert (graph.num_nodes, graph.num_edges, graph.num_classes) == (34, 156, 2)
    degree = graph.in_degree.tolist()
    # The degrees of Zachary's members, and the known sizes of the two clubs.
    assert degree[:6] == [16, 9, 10, 6, 3, 4] and degree[-2:] == [12, 17]
    assert torch.bincount(graph.y).tolist() == [17, 17]
    assert torch.equal(graph.x.to_dense(), torch.eye(34)) and validate(graph) == []


def test_digits():
    from sklearn.datasets import load_digits

    graph = data.load("digits")
    pixels, y = load_digits(return_X_y=True)
    assert graph.y.tolist() == y.tolist() and graph.is_symmetric and validate(graph) == []
    assert float(graph.x.min()) == 0 and float(graph.x.max()) == 1
    # An edge is at most as long as the tenth nearest distance of one of its ends; shorter pairs are edges.
    distance = cdist(pixels, pixels)
    tenth = np.partition(distance, 10, axis=1)[:, 10]
    src, dst = graph.indices.numpy(), graph.destinations.numpy()
    length = distance[src, dst]
    assert (length <= np.maximum(tenth[src], tenth[dst]) + 1e-9).all()
    near = distance < tenth[:, None] - 1e-9
    np.fill_diagonal(near, False)
    edges = set(zip(src.tolist(), dst.tolist(), strict=True))
    assert all(pair in edges for pair in zip(*np.nonzero(near), strict=True))
    shares = [float(mask.double().mean()) for mask in (graph.train_mask, graph.val_mask, graph.test_mask)]
    np.testing.assert_allclose(shares, [0.6, 0.2, 0.2], atol=0.001)
    card = data.find_card("digits")
    assert (card.num_nodes, card.num_edges) == (graph.num_nodes, graph.num_edges)
