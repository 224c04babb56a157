"""The entry point of a worker process."""

import json

import torch
from runtime.cases import chunked_graph, make_config

from gnnpar.config.files import to_yaml
from gnnpar.config.schema import LaunchConfig, TraceConfig, TrainConfig
from gnnpar.train.job import Job


def run_worker(_, run_dir):
    """As the launcher starts it, as the only rank, apart from the process."""
    import os
    from pathlib import Path

    import torch.distributed as dist
    from torch.distributed import TCPStore

    from gnnpar.train import worker

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    where = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
    os.environ |= where | {"OMP_NUM_THREADS": "1", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    try:
        worker.main(Path(run_dir))
        return torch.get_num_threads(), dist.is_initialized()
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        for name in (*where, "TORCHELASTIC_USE_AGENT_STORE"):
            del os.environ[name]


def test_it_joins_runs_its_share_and_leaves(pool, tmp_path):
    config = make_config(
        train=TrainConfig(num_epochs=2),
        trace=TraceConfig(tensorboard=False),
        launch=LaunchConfig(timeout_s=20.0),
    )
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    Job(tmp_path).write(chunked_graph(4), None)
    ((threads, _),) = pool.run(run_worker, 1, str(tmp_path), timeout_s=40)
    assert threads == 1
    assert json.loads((tmp_path / "summary.json").read_text())["num_epochs"] == 2
    assert "encoder.weight" in torch.load(tmp_path / "model.pt", weights_only=True)
