"""The loss: a sum over labelled vertices or entries, divided once, whatever the chunks."""

import pytest
import torch
import torch.nn.functional as F
from runtime.cases import chunked_graph
from support.graphs import tiny_graph

from gnnpar.runtime.targets import Targets


def total_loss(chunked, logits):
    targets = Targets(chunked, torch.device("cpu"))
    count = chunked.num_labels(chunked.chunks)
    return sum(
        targets.loss(logits[chunk.start : chunk.stop][targets.rows(chunk)], chunk, count)
        for chunk in chunked.chunks
    )


@pytest.mark.parametrize("num_chunks", [1, 3, 8])
def test_classes(num_chunks):
    chunked = chunked_graph(num_chunks)
    graph = chunked.graph
    logits = torch.randn(graph.num_nodes, 3, generator=torch.Generator().manual_seed(0)).double()
    wanted = graph.train_mask & (graph.y >= 0)
    assert wanted.sum() < graph.train_mask.sum()  # the graph has masked vertices without a label
    full = F.cross_entropy(logits[wanted], graph.y[wanted])
    torch.testing.assert_close(total_loss(chunked, logits), full, rtol=1e-13, atol=0)


@pytest.mark.parametrize("num_chunks", [1, 3, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_multi_label_leaves_missing_entries_out(num_chunks, dtype):
    graph = tiny_graph(multi_label=True, dtype=dtype)
    y = graph.y.clone()
    y[graph.train_mask.nonzero()[0, 0]] = torch.nan  # a training vertex with nothing known
    chunked = chunked_graph(num_chunks, graph.replace(y=y))
    graph = chunked.graph
    logits = torch.randn(graph.num_nodes, 3, generator=torch.Generator().manual_seed(0)).double()
    known = ~graph.y.isnan() & graph.train_mask[:, None]
    full = F.binary_cross_entropy_with_logits(logits[known], graph.y[known].double())
    torch.testing.assert_close(total_loss(chunked, logits), full, rtol=1e-13, atol=0)
    assert chunked.num_labels(chunked.chunks) == int(known.sum())


@pytest.mark.parametrize("multi_label", [False, True])
def test_a_chunk_without_labels_adds_zero_and_can_be_differentiated(multi_label):
    chunked = chunked_graph(4, multi_label=multi_label)
    targets = Targets(chunked, torch.device("cpu"))
    chunk = chunked.chunks[-1]
    assert targets.rows(chunk).numel() == 0
    logits = torch.randn(chunk.num_rows, 3).double().requires_grad_()
    assert chunked.num_labels([chunk]) == 0 < chunked.num_labels([chunked.whole])
    loss = targets.loss(logits[targets.rows(chunk)], chunk, 1)
    loss.backward()
    assert loss.item() == 0.0 and not logits.grad.any()


def test_rows_count_from_the_chunks_first_row():
    chunked = chunked_graph(3)
    targets = Targets(chunked, torch.device("cpu"))
    found = torch.cat([chunk.start + targets.rows(chunk) for chunk in chunked.chunks])
    wanted = (chunked.graph.train_mask & (chunked.graph.y >= 0)).nonzero()[:, 0]
    assert torch.equal(found, wanted)
