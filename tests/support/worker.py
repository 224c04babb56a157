"""A worker process of the pool: runs the functions it is sent, one thread, until its parent is gone.

Started by `support.pool` as a script: `python worker.py INDEX CONNECTION_FD STACKS_FILE`.
"""

import ctypes
import faulthandler
import os
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

PR_SET_PDEATHSIG = 1


def die_with_parent(parent):
    """The kernel kills this process when the thread that started it ends, however it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the call above
        os._exit(1)


def call(function, args, kwargs, *, rank, world_size, port, timeout_s):
    """Run one function in a process group of its own."""
    from torch.distributed import TCPStore

    from gnnpar.dist.context import Context

    if world_size == 1:
        context = Context.single(timeout_s=timeout_s)
    else:
        store = TCPStore("127.0.0.1", port, is_master=False)
        context = Context.join(rank, world_size, store=store, timeout_s=timeout_s)
    return function(context, *args, **kwargs)


def leave():
    """Leave the group: what waits for this rank then fails, so its own failure has to be told before."""
    from torch.distributed import destroy_process_group, is_initialized

    if is_initialized():
        destroy_process_group()


def portable(error):
    """The exception itself where it survives pickling, else None."""
    import cloudpickle

    try:
        return cloudpickle.loads(cloudpickle.dumps(error.with_traceback(None)))
    except Exception:
        return None


def main():
    index, descriptor, stacks_path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    die_with_parent(int(os.environ["POOL_PARENT"]))
    stacks = open(stacks_path, "w")  # noqa: SIM115 - open for the life of the process
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    sys.path[:0] = os.environ["POOL_PATH"].split(os.pathsep)

    import cloudpickle
    import torch

    torch.set_num_threads(1)
    connection = Connection(descriptor)
    connection.send(("ready", index))
    while True:
        try:
            message = connection.recv_bytes()
        except (EOFError, OSError):
            return
        threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
        try:
            function, args, kwargs, where = cloudpickle.loads(message)
            value = call(function, args, kwargs, **where)
            answer = ("value", cloudpickle.dumps(value))
        except BaseException as error:
            text = traceback.format_exc()
            answer = ("error", (text, portable(error)))
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            connection.send(answer)
        except OSError:
            return
        leave()


if __name__ == "__main__":
    # Python put the script's own folder on sys.path: off, so that a module has one name only.
    sys.path = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]
    main()
