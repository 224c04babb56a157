"""Messages between stages: asynchronous sends, receives posted ahead, every wait with a deadline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from gnnpar.dist.context import Context, reason
from gnnpar.errors import RunError
from gnnpar.trace import Recorder

__all__ = ["Message", "Transport"]


@dataclass(frozen=True, slots=True)
class Message:
    """A message on its way: the tensors, and what to wait for before they may be used or reused."""

    what: str
    peer: int
    tensors: list[Tensor]
    works: list[dist.Work]
    staged: list[Tensor] | None = None
    kind: str = "stage"
    tag: int = 0
    sent: bool = False

    @property
    def size(self) -> int:
        """Bytes."""
        return _size(self.tensors)


class Transport:
    """Sends and receives lists of tensors between the ranks of a run.

    With gloo, messages between two ranks are matched by tag, so receives may be posted in any order. nccl runs
    the messages of two ranks in the order in which they are posted: nothing may be posted ahead. A tensor
    without elements is no message; both ends know its size.

    Args:
        context: of this rank.
        recorder: counts the bytes sent by kind and the time spent waiting; gets spans `send`, `post` (of a
            receive) and `wait` for every message.
    """

    def __init__(self, context: Context, recorder: Recorder) -> None:
        self.context = context
        self.recorder = recorder
        self._timeout = timedelta(seconds=context.timeout_s)
        self.matches_by_tag = context.backend != "nccl"
        self._staged = context.backend == "gloo" and context.device.type == "cuda"

    def send(self, tensors: Sequence[Tensor], peer: int, tag: int, kind: str, what: str) -> Message:
        """Start sending. The tensors must stay unchanged until `finish`.

        Args:
            kind: what the bytes are counted as (`stage`, `evaluation` …).
            what: names the message in errors, e.g. `forward of micro-batch 3`.
        """
        contiguous = [tensor.detach().contiguous() for tensor in tensors]
        if self._staged:
            contiguous = [tensor.cpu() for tensor in contiguous]
        size = _size(contiguous)
        self.recorder.count_bytes(kind, peer, size)
        with (
            self.recorder.span("send", kind, peer=peer, tag=tag, size=size, sent=True),
            _naming(self.context, "sending", what, peer),
        ):
            works = [
                _work(dist.isend(tensor, peer, tag=tag + index))
                for index, tensor in enumerate(contiguous)
                if tensor.numel()
            ]
        return Message(what, peer, contiguous, works, None, kind, tag, True)

    def receive(
        self, buffers: Sequence[Tensor], peer: int, tag: int, what: str, kind: str = "stage"
    ) -> Message:
        """Post receives into `buffers`."""
        landing = [torch.empty_like(b, device="cpu") for b in buffers] if self._staged else list(buffers)
        with (
            self.recorder.span("post", kind, peer=peer, tag=tag),
            _naming(self.context, "receiving", what, peer),
        ):
            works = [
                _work(dist.irecv(tensor, peer, tag=tag + index))
                for index, tensor in enumerate(landing)
                if tensor.numel()
            ]
        return Message(what, peer, list(buffers), works, landing if self._staged else None, kind, tag)

    def swap(
        self,
        outgoing: Sequence[Tensor],
        buffers: Sequence[Tensor],
        peer: int,
        tags: tuple[int, int],
        kind: str,
        what: str,
    ) -> tuple[Message, Message]:
        """Start sending to a peer that swaps with this rank, and post the receives of what it sends.

        nccl runs the messages of two ranks in the order of posting, so the lower rank sends first.

        Args:
            outgoing: may be empty where the peer expects nothing; buffers likewise.
            tags: of what goes there, and of what comes back.

        Returns what was sent and what will have arrived.
        """
        there, back = tags
        if self.context.rank < peer:
            sent = self.send(outgoing, peer, there, kind, what)
            return sent, self.receive(buffers, peer, back, what, kind)
        arriving = self.receive(buffers, peer, back, what, kind)
        return self.send(outgoing, peer, there, kind, what), arriving

    def finish(self, message: Message) -> list[Tensor]:
        """Wait for a message; returns its tensors. Raises `RunError` naming rank, message and peer."""
        where = {"peer": message.peer, "tag": message.tag, "size": message.size, "sent": message.sent}
        with (
            self.recorder.span("wait", message.kind, **where),
            _naming(self.context, "waiting for", message.what, message.peer),
        ):
            for work in message.works:
                work.wait(self._timeout)
        if message.staged is not None:
            for buffer, landed in zip(message.tensors, message.staged, strict=True):
                buffer.copy_(landed)
        return message.tensors


class _naming:
    """Turns a transport failure into an error that names rank, message and peer."""

    def __init__(self, context: Context, doing: str, what: str, peer: int) -> None:
        self.text = f"rank {context.rank}: {doing} {what} with rank {peer}"
        self.timeout_s = context.timeout_s

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RuntimeError) and not isinstance(error, RunError):
            raise RunError(f"{self.text}: {reason(error, self.timeout_s)}") from error


def _size(tensors: Sequence[Tensor]) -> int:
    """Bytes of tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _work(work: dist.Work | None) -> dist.Work:
    if work is None:
        raise RuntimeError("not a member of the process group")
    return work
