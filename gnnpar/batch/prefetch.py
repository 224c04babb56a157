"""Batches made ahead by threads, handed over in order."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Generic, TypeVar

from gnnpar.batch.structure import count_faults
from gnnpar.errors import Faults, RunError

__all__ = ["Prefetch"]

T = TypeVar("T")


class Prefetch(Generic[T]):
    """`make(0), make(1), …` in order, up to `depth` of them made ahead of whoever iterates.

    Use as a context manager, or call `close`: threads do not outlive it, unless one is stuck in `make` when
    the deadline passes; that one does not keep the interpreter from ending.

    Example:
        >>> with Prefetch(lambda i: i * i, 4) as squares:
        ...     print(list(squares))
        [0, 1, 4, 9]

    Args:
        make: batch number → batch; called by the threads, for different numbers at once. Sampling holds the
            interpreter lock for little of its time.
        count: batches. depth: batches that wait or are being made, at most. num_threads: that make them.
        timeout_s: how long the next batch may take, and `close`.

    Raises:
        InputError: a depth or number of threads that is no positive number, a deadline that is not positive.
    """

    def __init__(
        self,
        make: Callable[[int], T],
        count: int,
        *,
        depth: int = 2,
        num_threads: int = 1,
        timeout_s: float = 300.0,
    ) -> None:
        faults = Faults("prefetch")
        faults.extend(count_faults(depth=depth, num_threads=num_threads))
        if not timeout_s > 0:
            faults.add(f"timeout_s: must be positive, got {timeout_s}")
        faults.raise_if_any()
        self._make, self._count, self._depth, self._timeout_s = make, count, depth, timeout_s
        self._next = 0  # the first batch not yet asked for
        self._waiting: deque[Future[T]] = deque()
        self._asked: SimpleQueue[tuple[int, Future[T]] | None] = SimpleQueue()
        # Not an executor's threads: the interpreter would wait for those at its end, however long.
        self._threads = [
            threading.Thread(target=self._work, name=f"gnnpar-batch_{i}", daemon=True)
            for i in range(num_threads)
        ]
        self._open = True
        for thread in self._threads:
            thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        """The next batch.

        Raises:
            RunError: making it failed, which is then the cause, or took too long; no more batches follow.
        """
        self._ask()
        if not self._waiting:
            self.close()
            raise StopIteration
        number = self._next - len(self._waiting)
        future = self._waiting.popleft()
        try:
            batch = future.result(self._timeout_s)
        except BaseException as error:
            late = isinstance(error, TimeoutError) and not future.done()
            self._stop()
            if late:
                raise RunError(f"batch {number} was not there within {self._timeout_s:g} s") from error
            if not isinstance(error, Exception):
                raise
            raise RunError(f"batch {number} could not be made: {error}") from error
        self._ask()
        return batch

    def __enter__(self) -> Prefetch[T]:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except RunError:
            if kind is None:  # else what went wrong first is the error to see
                raise

    def close(self) -> None:
        """Stop: what is not begun is dropped, what is being made is waited for.

        Raises:
            RunError: a batch was still being made when the deadline passed.
        """
        self._stop()
        deadline = time.monotonic() + self._timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            raise RunError(f"a batch was still being made {self._timeout_s:g} s after the stop")

    def _ask(self) -> None:
        while self._open and self._next < self._count and len(self._waiting) < self._depth:
            future: Future[T] = Future()
            self._waiting.append(future)
            self._asked.put((self._next, future))
            self._next += 1

    def _stop(self) -> None:
        if not self._open:
            return
        self._open = False
        for future in self._waiting:
            future.cancel()
        self._waiting.clear()
        for _ in self._threads:
            self._asked.put(None)

    def _work(self) -> None:
        """What a thread does: make what is asked for, until told to end."""
        while (asked := self._asked.get()) is not None:
            number, future = asked
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(self._make(number))
            except BaseException as error:  # handed to whoever waits for the batch
                future.set_exception(error)
