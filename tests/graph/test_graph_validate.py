import pytest
import torch

from gnnpar.graph.graph import Graph
from gnnpar.graph.validate import validate


def sound():
    part = torch.arange(12) % 3
    return Graph.from_edge_index(
        torch.stack([torch.arange(12), (torch.arange(12) + 1) % 12]),
        x=torch.rand(12, 4),
        y=torch.arange(12) % 3,
        train_mask=part == 0,
        val_mask=part == 1,
        test_mask=part == 2,
        edge_weight=torch.ones(12),
        edge_attr=torch.ones(12, 2),
    )


def changed(key, where, value):
    tensor = getattr(sound(), key).clone()
    tensor[where] = value
    return sound().replace(**{key: tensor})


def test_a_sound_graph_has_no_faults():
    assert validate(sound()) == []


@pytest.mark.parametrize(
    ("key", "where", "value", "message"),
    [
        ("indices", 3, 12, "edge index: 1 ids out of range 0..11, the first are [12]"),
        ("indices", 3, -1, "the first are [-1]"),
        ("x", (5, 1), float("nan"), "features: 1 values are NaN or infinite, the first in rows [5]"),
        ("edge_weight", 2, float("inf"), "edge_weight: 1 values"),
        ("edge_attr", (2, 1), float("nan"), "edge_attr: 1 values"),
        ("y", 7, 3, "labels: 1 outside 0..2"),
        ("y", 7, -2, "vertices [7] with values [-2]"),
        ("y", 0, -1, "train_mask: 1 vertices without a label"),
        ("val_mask", 3, True, "train_mask and val_mask overlap in 1 vertices, the first are vertices [3]"),
        ("train_mask", slice(None), False, "train_mask: no vertex is selected"),
        ("indptr", 4, 9, "indptr: must rise from 0"),
    ],
)
def test_each_fault(key, where, value, message):
    faults = validate(changed(key, where, value))
    assert len(faults) == 1 and message in faults[0]


@pytest.mark.parametrize("key", ["y", "x", "val_mask", "node_ids", "edge_weight", "edge_attr"])
def test_wrong_lengths(key):
    faults = validate(sound().replace(**{key: getattr(sound(), key)[:-1]}))
    assert len(faults) == 1 and faults[0].startswith(f"{key}: 11 rows for 12")


def test_all_faults_at_once():
    graph = changed("x", (0, 0), float("nan")).replace(val_mask=sound().train_mask)
    graph = graph.replace(y=torch.full((12,), 9), edge_weight=torch.full((12,), float("nan")))
    assert len(validate(graph)) == 4


def test_multi_label_entries():
    y = torch.zeros(12, 2)
    y[1, 0] = float("nan")
    assert validate(sound().replace(y=y, num_classes=2)) == []
    y[4, 1] = 0.5
    assert "vertices [4]" in validate(sound().replace(y=y, num_classes=2))[0]
