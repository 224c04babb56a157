"""Steps written down by hand, as the recorder would have seen them."""

from gnnpar.trace.timeline import Epoch, Event, Op, Step

__all__ = ["epoch_of", "pipeline", "step_of"]


class Rank:
    """One rank's operations in order; times in seconds."""

    def __init__(self, start=0.0):
        self.now = start
        self.ops = []

    def work(self, seconds, kind="F", stage=0, batch=0):
        event = self._event(kind, f"{stage}{kind}{batch}", self.now + seconds, stage=stage, batch=batch)
        action = event if kind in "FBIW" else None
        self._add("work", self.now + seconds, event, action)
        return self

    def send(self, peer, tag, kind="stage"):
        return self._add("send", self.now, self._event("send", kind, self.now, peer, tag, True))

    def post(self, peer, tag, kind="stage"):
        return self._add("post", self.now, self._event("post", kind, self.now, peer, tag))

    def wait(self, until, peer, tag, kind="stage", sent=False):
        until = max(until, self.now)
        return self._add("wait", until, self._event("wait", kind, until, peer, tag, sent))

    def _event(self, kind, text, end, peer=-1, tag=0, sent=False, stage=-1, batch=-1):
        return Event(kind, text, self.now, end, stage, batch, -1, peer, tag, 0, sent)

    def _add(self, what, end, event, action=None):
        self.ops.append(Op(what, self.now, end, event, action, "step"))
        self.now = end
        return self


def step_of(*ranks):
    return Step(0, [rank.ops for rank in ranks])


def epoch_of(number, rank, ops):
    start, end = ops[0].start, ops[-1].end
    span = Event("step", "", start, end, -1, 0, -1, -1, 0, 0, False)
    return Epoch(number, rank, start, end, [span], ops)


def pipeline(first, second, delay=0.0):
    """Two stages forward: micro-batches of these seconds, messages that take `delay`."""
    a, b = Rank(), Rank()
    for batch in range(len(first)):
        b.post(0, batch)
    ready = 0.0
    for batch, seconds in enumerate(first):
        a.work(seconds, batch=batch)
        ready = a.now + delay
        a.send(1, batch)
        b.wait(ready, 0, batch)
        b.work(second[batch], stage=1, batch=batch)
    end = b.now
    for rank in (a, b):
        rank.wait(end, -1, 0, "control")
    return step_of(a, b)
