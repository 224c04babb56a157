"""scripts/launch: every script on a tiny dataset in the layout of the real one."""

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from support.ogb_raw import content, write_binary, write_text

from gnnpar import data
from gnnpar.config import compose
from gnnpar.train.run import prepare

FOLDER = Path(__file__).resolve().parents[1] / "scripts" / "launch"
SCRIPTS = sorted(path for path in FOLDER.glob("*.sh") if path.name != "common.sh")
NAMES = ("flickr", "ogbn-arxiv", "ogbn-papers100M", "ogbn-products", "ogbn-proteins", "reddit")
TINY = ("model.num_layers=4", "model.hidden=8", "batch.num_chunks=2", "train.num_epochs=2")
SLURM = """#!{python}
# srun: starts the tasks of a step, each with the variables that Slurm sets.
import os, subprocess, sys
count = int(os.environ["SLURM_NTASKS"])
step = {{"SLURM_STEP_NUM_TASKS": str(count), "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NODELIST": "localhost"}}
step["SLURM_STEP_TASKS_PER_NODE"] = str(count)
command = [word for word in sys.argv[1:] if not word.startswith("--")]
tasks = [
    subprocess.Popen(command, env={{**os.environ, **step, "SLURM_PROCID": str(n), "SLURM_LOCALID": str(n)}})
    for n in range(count)
]
sys.exit(max(task.wait(timeout=200) for task in tasks))
"""


def write_dataset(name, folder):
    """A tiny dataset as it lies in the cache after `gnnpar data fetch`."""
    folder.mkdir(parents=True)
    if name == "ogbn-papers100M":
        write_binary(folder, content(), "time")
    elif name == "ogbn-proteins":
        write_text(folder, content(features=0, edge_features=8, tasks=5), "species")
    elif name.startswith("ogbn"):
        write_text(folder, content(), {"ogbn-arxiv": "time", "ogbn-products": "sales_ranking"}[name])
    else:
        rng = np.random.default_rng(0)
        x, y = rng.random((12, 3)).astype(np.float32), np.arange(12) % 3
        adjacency = sp.coo_matrix((rng.random((12, 12)) < 0.3).astype(np.float32))
        if name == "reddit":
            sp.save_npz(folder / "reddit_graph.npz", adjacency)
            types = np.repeat([1, 2, 3], 4)
            np.savez(folder / "reddit_data.npz", feature=x, label=y, node_types=types)
        else:
            sp.save_npz(folder / "adj_full.npz", adjacency.tocsr())
            np.save(folder / "feats.npy", x)
            (folder / "class_map.json").write_text(json.dumps({str(v): int(y[v]) for v in range(12)}))
            role = {"tr": [0, 1, 2, 3, 4, 5], "va": [6, 7, 8], "te": [9, 10, 11]}
            (folder / "role.json").write_text(json.dumps(role))


def run(script, *words, cwd=FOLDER.parents[1], **variables):
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_")}
    environment = kept | {"PYTHON": sys.executable} | variables
    return subprocess.run(
        ["bash", str(script), *words], env=environment, cwd=cwd, capture_output=True, text=True, timeout=240
    )


def printed(script, *words, **variables):
    result = run(script, *words, DRY_RUN="1", **variables)
    assert result.returncode == 0, result.stderr
    return shlex.split(result.stdout)


def test_there_is_one_a_dataset():
    assert [path.stem for path in SCRIPTS] == sorted(NAMES)
    assert all(os.access(path, os.X_OK) for path in SCRIPTS)


def test_their_syntax_is_bash_s():
    for path in FOLDER.glob("*.sh"):
        subprocess.run(["bash", "-n", str(path)], check=True)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_keys_and_dataset_are_ready_to_run(script, tmp_path, monkeypatch):
    command = printed(script)
    assert command[:5] == [sys.executable, "-m", "gnnpar", "train", "parallel.stages=4"]
    keys = command[4:]
    config = compose(keys)
    assert config.dataset.name == script.stem and config.system == "gnnpipe"
    assert config.model.num_layers >= 8 and config.batch.num_chunks >= 16
    monkeypatch.setenv("GNNPAR_DATA", str(tmp_path))
    write_dataset(script.stem, tmp_path / "raw" / script.stem)
    tiny = compose([*keys, *TINY])
    assert prepare(tiny, data.load(tiny.dataset), None).num_chunks == 2


def test_several_hosts_by_torchrun():
    several = {"NODES": "2", "STAGES": "8", "NODE_RANK": "1", "MASTER_ADDR": "host0"}
    command = printed(FOLDER / "reddit.sh", "seed=3", "run.dir=a b", **several)
    for word in ("--nnodes=2", "--node-rank=1", "--nproc-per-node=4", "--master-addr=host0", "gnnpar"):
        assert word in command
    assert command[1:3] == ["-m", "torch.distributed.run"] and command[-2:] == ["seed=3", "run.dir=a b"]
    assert compose(command[command.index("train") + 1 :]).parallel.stages == 8
    uneven = run(FOLDER / "reddit.sh", DRY_RUN="1", NODES="3", NODE_RANK="0", MASTER_ADDR="host0")
    assert uneven.returncode == 2 and "make it a multiple" in uneven.stderr
    lacking = run(FOLDER / "reddit.sh", DRY_RUN="1", NODES="2", STAGES="2", NODE_RANK="0")
    assert lacking.returncode and "MASTER_ADDR: is the first host" in lacking.stderr


def test_on_one_host(tmp_path):
    write_dataset("ogbn-arxiv", tmp_path / "raw" / "ogbn-arxiv")
    words = [*TINY, f"run.dir={tmp_path}/run", "trace.tensorboard=false", "format=json"]
    result = run(FOLDER / "ogbn-arxiv.sh", *words, GNNPAR_DATA=str(tmp_path), STAGES="2", OMP_NUM_THREADS="1")
    assert result.returncode == 0, result.stderr
    summary = json.loads(result.stdout)
    assert summary["num_epochs"] == 2 and len(summary["peak_memory_bytes"]) == 2


def test_under_slurm(tmp_path):
    write_dataset("flickr", tmp_path / "raw" / "flickr")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "srun").write_text(SLURM.format(python=sys.executable))
    (tmp_path / "bin" / "srun").chmod(0o755)
    spool = shutil.copy(FOLDER / "flickr.sh", tmp_path / "slurm_script")  # as Slurm does
    words = [*TINY, f"run.dir={tmp_path}/run", "trace.tensorboard=false", "format=json"]
    result = run(
        *(spool, *words),
        cwd=tmp_path,
        GNNPAR_DATA=str(tmp_path),
        PATH=f"{tmp_path}/bin:{os.environ['PATH']}",
        SLURM_SUBMIT_DIR=str(FOLDER.parents[1]),
        SLURM_JOB_ID=str(free_port() - 20_000),  # which the port of the rendezvous follows from
        SLURM_NTASKS="2",
    )
    assert result.returncode == 0, result.stderr
    summary = json.loads(result.stdout)
    assert summary["num_epochs"] == 2 and len(summary["peak_memory_bytes"]) == 2
    assert "2 ranks here, 1 thread each" in result.stderr


def free_port():
    for port in range(20_011, 60_000, 37):
        with socket.socket() as trial:
            try:
                trial.bind(("", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")
