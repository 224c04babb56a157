"""The runs and the page of the experiment with naive chunks."""

from pathlib import Path

from gnnpar.config import compose
from scripts.experiments.accuracy_finished import Finished
from scripts.experiments.naive_chunks_cases import CASES, VARIANTS, list_runs
from scripts.experiments.naive_chunks_page import page

RUNS = list_runs(list(CASES), (1, 2, 4), (5, 6), Path("/data/pubmed.npz"), None)


def test_one_chunk_is_full_batch_and_every_other_number_has_all_variants():
    assert len(RUNS) == len(CASES) * 2 * (1 + 2 * len(VARIANTS))
    assert len({run.key for run in RUNS}) == len(RUNS)
    assert {run.seed for run in RUNS[: len(RUNS) // 2]} == {5}
    assert [(run.case, run.chunks) for run in RUNS[:2]] == [("gat", 1), ("gat", 4)]


def test_runs_are_what_they_are_called():
    for run in RUNS:
        config = compose([*run.overrides, *run.place])
        by_number, history = "by number" in run.variant, "history" in run.variant
        assert (config.parallel.stages, config.batch.num_chunks) == (1, run.chunks)
        if run.chunks > 1:
            assert config.partition.method == ("range" if by_number else "metis")
            assert config.partition.cost_edge == (0.0 if by_number else 0.05)
            assert config.batch.kind == ("chunks" if history else "clusters")


def test_a_finished_run_is_found_again_and_told(tmp_path):
    finished = Finished.read(tmp_path / "runs.jsonl")
    run = next(run for run in RUNS if (run.variant, run.chunks, run.case) == ("by number", 4, "gat"))
    scores = {"test_accuracy": 0.7, "val_accuracy": 0.72, "test_accuracy_cut": 0.6, "cut_share": 0.748}
    finished.add(run, scores | {"best_epoch": 120, "unknown": 1})
    again = Finished.read(tmp_path / "runs.jsonl")
    assert run in again and len(again.results) == 1
    times = {("gat", "by number", 4): {"epoch_time_s": 0.25, "epoch_cpu_s": [0.1, 0.2]}}
    text = "\n".join(page([(run, again[run])], times, {4: 0.0125}, 3, 9))
    row = next(line for line in text.splitlines() if "4 by number " in line)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    wanted = ["4 by number", "74.8%", "74.8%", "70.0 (n=1)", "60.0 (n=1)", "72.0 (n=1)", "120"]
    assert cells == [*wanted, "0.250", "0.300"]
    assert "4 chunks 12.5 ms" in text and "against full batch" not in text


def test_the_page_says_what_is_lost_against_full_batch():
    full = next(run for run in RUNS if (run.variant, run.case) == ("full batch", "gat"))
    naive = next(run for run in RUNS if (run.variant, run.chunks, run.case) == ("by number", 4, "gat"))
    common = {"val_accuracy": 0.8, "best_epoch": 9}
    found = [
        (full, common | {"test_accuracy": 0.8, "test_accuracy_cut": 0.8, "cut_share": 0.0}),
        (naive, common | {"test_accuracy": 0.79, "test_accuracy_cut": 0.75, "cut_share": 0.7}),
    ]
    text = "\n".join(page(found, {}, {}, 1, 9))
    assert (
        "4 chunks by number against full batch, mean of 1 seed: -1.0 points" in text and "-5.0 where" in text
    )
