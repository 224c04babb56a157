"""Runs with events under axes that allow one micro-batch only."""

import pytest

from gnnpar.config import compose
from gnnpar.train.run import run


@pytest.mark.parametrize("system", ["pipegcn", "sar"])
def test_a_traced_run_trains_whatever_its_system_allows(system, tmp_path, monkeypatch):
    """Asking what twice the chunks would do once refused systems that can have one chunk a way only."""
    monkeypatch.setenv("GNNPAR_DATA", str(tmp_path / "home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    keys = [
        f"system={system}",
        "dataset=karate",
        "model.num_layers=2",
        "model.hidden=4",
        "train.num_epochs=2",
    ]
    keys += ["parallel.ways=2", "launch.timeout_s=60", "trace.tensorboard=false"]
    result = run(compose([*keys, "trace.enabled=true", f"run.dir={tmp_path / 'run'}"]), ["test"])
    assert result.summary["num_epochs"] == 2
    assert (tmp_path / "run" / "trace.json").exists()
