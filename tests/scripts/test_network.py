"""Closed forms and page of the network experiment, on a graph small enough to count by hand."""

import numpy as np
import pytest

from scripts.experiments.network_bytes import Volume, halo_rows
from scripts.experiments.network_page import Measured, page

# 0 - 1 | 2 - 3 in a ring, both directions stored, and 4 alone in the third quarter: chunks 0, 0, 1, 1, 2.
RING = [(0, 1), (1, 2), (2, 3), (3, 0)]
SOURCES = np.array([a for a, _ in RING] + [b for _, b in RING])
TARGETS = np.array([b for _, b in RING] + [a for a, _ in RING])
CHUNK_OF = np.array([0, 1, 2, 3])


def test_mirrors_of_a_ring_in_four_parts():
    assert halo_rows(SOURCES, TARGETS, CHUNK_OF, [0, 0, 0, 0], 4) == (8, 8)


def test_a_way_reads_a_row_once_however_many_edges_lead_there():
    sources, targets = np.array([0, 0, 0]), np.array([1, 2, 3])
    assert halo_rows(sources, targets, CHUNK_OF, [0, 0, 0, 0], 2) == (1, 2)  # D of 2 and of 3, read by way 0
    assert halo_rows(sources, targets, CHUNK_OF, [0, 0, 0, 0], 4) == (3, 3)


def test_gradients_come_back_from_chunks_that_run_no_earlier():
    # Ways {0, 1} and {2, 3}; 0 and 2 run in the first slot, 1 and 3 in the second. Crossing: 1-2 and 3-0.
    forward, backward = halo_rows(SOURCES, TARGETS, CHUNK_OF, [0, 1, 0, 1], 2)
    assert forward == 4
    assert backward == 2  # of the four crossing edges two lead to an earlier slot, which read history


def test_bytes_of_each_kind():
    pipeline = Volume(1000, 32, 100, 5000, 36, stages=4, ways=1).by_kind()
    assert pipeline == {"stage": 16 * 3 * 1000 * 100, "halo": 0, "weight": 0, "control": 0}
    graph = Volume(1000, 32, 100, 5000, 36, stages=1, ways=4, rows=(70, 70)).by_kind()
    assert graph == {"stage": 0, "halo": 8 * 32 * 70 * 100, "weight": 4 * 12 * 5000, "control": 12 * 36}


def measured(network, system, seconds, **volume):
    sizes = Volume(1000, 32, 100, 5000, 36, **volume)
    sent = {kind: number for kind, number in sizes.by_kind().items() if number}
    return Measured(network, "squirrel", system, seconds, 2.0, 0.5, 0.1, 1 << 30, [8] * 4, sent, sizes, 70)


def test_the_busiest_link():
    assert measured("lo", "pipeline", 1.0, stages=4, ways=1).busiest == 16 * 1000 * 100
    hybrid = measured("lo", "hybrid", 1.0, stages=2, ways=2)
    assert hybrid.busiest == pytest.approx(16 * 1000 * 100 / 4 + (4 * 2 * 5000 + 2 * 36) / 4)


def test_the_page_says_who_was_first_and_by_how_much():
    found = [
        measured("lo", "graph", 2.0, stages=1, ways=4, rows=(70, 70)),
        measured("lo", "pipeline", 3.0, stages=4, ways=1),
    ]
    text = "\n".join(page(found, {"lo": 1e8}, 7, 2.0))
    assert "squirrel, lo: first is graph parallel, 4 ways. The pipeline takes 1.50 times as long" in text
    assert "0.07" in text and "4,800,000" in text  # α, and the bytes of the pipeline
