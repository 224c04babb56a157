"""What every batch must satisfy, and means over many batches with their tolerance."""

import torch

from gnnpar.batch import BatchKey
from gnnpar.graph.norm import degrees

__all__ = ["KEY", "assert_batch", "assert_rate", "dense", "keys", "same_batch", "tensors"]

KEY = BatchKey(seed=7, epoch=3, batch=2)


def keys(count):
    """Keys of many batches: over seeds, epochs and batches alike."""
    return [BatchKey(i % 3, i % 7, i) for i in range(count)]


def dense(graph, block, vertices):
    """`[R, N]` float64: the block's adjacency with its weights (or ones), by vertex of the graph."""
    weight = torch.ones(block.num_edges) if block.edge_weight is None else block.edge_weight
    matrix = torch.zeros(block.num_rows, graph.num_nodes, dtype=torch.float64)
    return matrix.index_put_((block.rows, vertices[block.columns]), weight.double(), accumulate=True)


def assert_batch(graph, batch, *, whole_degrees=True):
    """Blocks fit each other, every edge is one of the graph, and what belongs to edges came along."""
    vertices = batch.vertices
    assert vertices.dtype == torch.int64
    assert batch.blocks[0].num_columns == vertices.numel()
    following = [*batch.blocks[1:], None]
    for block, edges, after in zip(batch.blocks, batch.edge_ids, following, strict=True):
        own = vertices[: block.num_columns]
        assert torch.equal(block.column_ids, graph.node_ids[own])
        assert torch.equal(block.row_ids, block.column_ids[: block.num_rows])
        assert after is None or after.num_columns == block.num_rows
        assert block.indptr.shape == (block.num_rows + 1,) and block.indptr[0] == 0
        assert block.indptr[-1] == block.num_edges == edges.numel()
        assert torch.equal(graph.destinations[edges], own[block.rows])
        assert torch.equal(graph.indices[edges].long(), own[block.columns])
        for dtype in (t.dtype for t in (block.indptr, block.columns, block.column_ids, edges)):
            assert dtype == torch.int64
        if whole_degrees:
            into, out = degrees(graph)
            assert torch.equal(block.in_degree, into[own]) and torch.equal(block.out_degree, out[own])
        if graph.edge_attr is not None:
            assert torch.equal(block.edge_attr, graph.edge_attr[edges])
    assert batch.targets.numel() == 0 or int(batch.targets.max()) < batch.blocks[-1].num_rows


def assert_rate(mean, expected, variance, count):
    """The mean of `count` draws of known variance is what is expected: within five standard errors.

    Keys are fixed, so this holds or fails once and for all. Where nothing varies it must be equal.
    """
    bound = 5 * (variance / count).sqrt() + 1e-9 * (1 + expected.abs())
    worst = ((mean - expected).abs() - bound).max()
    assert worst <= 0, f"off by {worst} beyond five standard errors"


def tensors(batch):
    """All numbers of a batch."""
    values = [batch.vertices, batch.targets, *batch.edge_ids]
    for block in batch.blocks:
        values += [block.indptr, block.columns, block.column_ids, block.in_degree, block.out_degree]
        values += [v for v in (block.edge_weight, block.edge_attr) if v is not None]
    return values if batch.loss_weight is None else [*values, batch.loss_weight]


def same_batch(a, b):
    ours, others = tensors(a), tensors(b)
    return len(ours) == len(others) and all(map(torch.equal, ours, others))
