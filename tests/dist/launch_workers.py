"""What the workers of the launch tests do: the module that `launch_workers` is told to run."""

import json
import logging
import os
import signal
import subprocess
import sys
import time

from gnnpar.dist import Context
from gnnpar.errors import InputError

NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MALLOC_TRIM_THRESHOLD_")


def main(run_dir):
    rank = int(os.environ["RANK"])
    (run_dir / f"pid{rank}").write_text(str(os.getpid()))
    context = Context.join(rank, int(os.environ["WORLD_SIZE"]), timeout_s=60)
    try:
        globals()[(run_dir / "what").read_text()](run_dir, rank, context)
    finally:
        context.close()


def report(run_dir, rank, context):
    logging.getLogger("gnnpar.test").info("quiet %d", rank)
    logging.getLogger("gnnpar.test").warning("loud %d", rank)
    print(f"printed by {rank}")
    (run_dir / f"{rank}.json").write_text(json.dumps({name: os.environ[name] for name in NAMES}))
    context.barrier("the end")


def kill_second(run_dir, rank, context):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    context.barrier("never")


def kill_second_while_first_is_deaf(run_dir, rank, context):
    context.barrier("the start")
    if rank == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        (run_dir / "pid_child").write_text(str(child.pid))
        context.barrier("deaf")
        time.sleep(1000)
    context.barrier("deaf")
    os.kill(os.getpid(), signal.SIGKILL)


def raise_in_second(run_dir, rank, context):
    if rank == 1:
        raise ValueError("the cause")
    context.barrier("never")


def refuse(run_dir, rank, context):
    raise InputError("graph", ["edge 3 is wrong", "label 7 is wrong"])


def sleep(run_dir, rank, context):
    context.barrier("the start")
    (run_dir / f"asleep{rank}").touch()
    time.sleep(1000)
