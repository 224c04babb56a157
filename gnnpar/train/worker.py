"""Entry point of a worker process: `python -m gnnpar.train.worker RUN_DIR`, one per rank."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from gnnpar.config.files import from_yaml
from gnnpar.dist import Context
from gnnpar.train.job import Job, run_rank

__all__ = ["main"]


def main(run_dir: Path) -> None:
    """Join the other ranks (addresses from the launcher's environment) and run this one's share."""
    config = from_yaml((run_dir / "config.yaml").read_text())
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    context = Context.join(
        int(os.environ["RANK"]),
        int(os.environ["WORLD_SIZE"]),
        device=config.device,
        timeout_s=config.launch.timeout_s,
    )
    try:
        run_rank(Job(run_dir), context)
    finally:
        context.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
