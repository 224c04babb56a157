"""Metrics against scikit-learn and against counting by hand."""

import math

import pytest
import torch
from sklearn.metrics import accuracy_score, roc_auc_score

from gnnpar.errors import InputError
from gnnpar.train.metrics import Counts, count_correct, mean_loss, roc_auc, score


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_accuracy_as_scikit_learn():
    logits, y = random(200, 5), torch.randint(0, 5, (200,), generator=torch.Generator().manual_seed(1))
    mask = torch.arange(200) % 3 == 0
    assert score(logits, y, mask, "accuracy") == pytest.approx(
        accuracy_score(y[mask], logits[mask].argmax(1))
    )


def test_unlabelled_vertices_do_not_count():
    logits = torch.eye(4)
    y = torch.tensor([0, -1, 2, 0])
    assert count_correct(logits, y, torch.ones(4, dtype=torch.bool)) == Counts(2, 3)


def test_multi_label_accuracy_counts_entries():
    logits = torch.tensor([[1.0, -1.0], [2.0, 3.0]])
    y = torch.tensor([[1.0, 1.0], [math.nan, 1.0]])
    assert count_correct(logits, y, torch.ones(2, dtype=torch.bool)) == Counts(2, 3)


def test_counts_of_chunks_add_up():
    logits, y, mask = random(30, 3), torch.arange(30) % 3, torch.arange(30) % 4 != 0
    whole = count_correct(logits, y, mask)
    parts = [count_correct(logits[s], y[s], mask[s]) for s in (slice(0, 7), slice(7, 8), slice(8, 30))]
    assert sum(parts, Counts(0, 0)) == whole


@pytest.mark.parametrize("ties", [False, True])
def test_two_class_roc_auc_as_scikit_learn(ties):
    logits = random(300, 2)
    logits = logits.round() if ties else logits
    y = torch.randint(-1, 2, (300,), generator=torch.Generator().manual_seed(2))
    mask = torch.arange(300) % 2 == 0
    rows = mask & (y >= 0)
    expected = roc_auc_score(y[rows], (logits[:, 1] - logits[:, 0])[rows])
    assert score(logits, y, mask, "rocauc") == pytest.approx(expected, abs=1e-12)
    assert roc_auc(logits[:, 1:] - logits[:, :1], y, mask) == pytest.approx(expected, abs=1e-12)


def test_multi_label_roc_auc_is_the_mean_over_labels_with_both_values():
    logits = random(100, 4).round(decimals=1)
    y = (random(100, 4, seed=1) > 0).float()
    y[random(100, 4, seed=2) > 1] = math.nan
    y[:, 2] = 1.0
    mask = torch.arange(100) < 60
    expected = []
    for t in (0, 1, 3):
        rows = mask & ~y[:, t].isnan()
        expected.append(roc_auc_score(y[rows, t], logits[rows, t]))
    assert roc_auc(logits, y, mask) == pytest.approx(sum(expected) / 3, abs=1e-12)


def test_an_empty_mask_or_a_single_class_is_nan():
    logits, y = random(4, 2), torch.tensor([1, 1, 1, 0])
    none = torch.zeros(4, dtype=torch.bool)
    assert math.isnan(score(logits, y, none, "accuracy")) and math.isnan(score(logits, y, none, "rocauc"))
    assert math.isnan(score(logits, y, torch.arange(4) < 3, "rocauc"))


def test_refusals():
    logits, y, mask = random(4, 3), torch.tensor([0, 1, 2, 0]), torch.ones(4, dtype=torch.bool)
    with pytest.raises(InputError, match="two classes"):
        score(logits, y, mask, "rocauc")
    with pytest.raises(InputError, match="unknown 'f1'"):
        score(logits, y, mask, "f1")


def test_loss_is_a_mean_over_the_labelled_vertices_of_the_mask():
    logits, y = random(40, 4), torch.arange(40) % 4
    y[::5] = -1
    mask = torch.arange(40) % 3 == 0
    chosen = mask & (y >= 0)
    expected = -logits.log_softmax(1)[chosen, y[chosen]].mean()
    assert mean_loss(logits, y, mask) == pytest.approx(float(expected), rel=1e-6)
    assert math.isnan(mean_loss(logits, y, torch.zeros(40, dtype=torch.bool)))


def test_multi_label_loss_counts_known_entries():
    logits = torch.tensor([[1.0, -1.0], [2.0, 3.0]])
    y = torch.tensor([[1.0, 1.0], [math.nan, 0.0]])
    expected = sum(math.log1p(math.exp(x)) for x in (-1.0, 1.0, 3.0)) / 3
    assert mean_loss(logits, y, torch.ones(2, dtype=torch.bool)) == pytest.approx(expected, rel=1e-6)
