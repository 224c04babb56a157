"""Ways of one stage as threads of one process, for exchanges without a trainer."""

from concurrent.futures import ThreadPoolExecutor
from queue import Queue

import torch

from gnnpar.trace import Recorder

__all__ = ["Loopback", "on_every_way"]

DEADLINE_S = 60


class Loopback:
    """What a `Transport` does, between threads. Make one for all ways; `of(rank)` is that of each."""

    def __init__(self, rank=0, queues=None):
        self.rank, self.queues, self.recorder = rank, {} if queues is None else queues, Recorder()

    def of(self, rank):
        return Loopback(rank, self.queues)

    def queue(self, *key):
        return self.queues.setdefault(key, Queue())

    def swap(self, outgoing, buffers, peer, tags, kind, what):
        for place, tensor in enumerate(outgoing):
            self.recorder.count_bytes(kind, peer, tensor.numel() * tensor.element_size())
            self.queue(self.rank, peer, tags[0] + place).put(tensor.clone())
        return None, (buffers, peer, tags[1])

    def finish(self, message):
        if message is not None:
            buffers, peer, tag = message
            for place, buffer in enumerate(buffers):
                arrived = self.queue(peer, self.rank, tag + place).get(timeout=DEADLINE_S)
                assert (arrived.shape, arrived.dtype) == (buffer.shape, buffer.dtype)
                buffer.copy_(arrived)


def on_every_way(function, halos):
    """`[function(halo, way)]`, all at once."""
    with ThreadPoolExecutor(len(halos)) as threads, torch.no_grad():
        return list(threads.map(function, halos, range(len(halos)), timeout=DEADLINE_S))
