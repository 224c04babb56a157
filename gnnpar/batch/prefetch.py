"""Batches made ahead by threads, handed over in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Generic, TypeVar

from gnnpar.errors import InputError, RunError

__all__ = ["Prefetch"]

T = TypeVar("T")


class Prefetch(Generic[T]):
    """`make(0), make(1), …` in order, up to `depth` of them made ahead of whoever iterates.

    Use as a context manager, or call `close`: threads do not outlive it.

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
        InputError: a depth, number of threads or deadline that is not positive.
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
        faults = [
            f"{name}: must be positive, got {value}"
            for name, value in (("depth", depth), ("num_threads", num_threads), ("timeout_s", timeout_s))
            if not value > 0
        ]
        if faults:
            raise InputError("prefetch", faults)
        self._make, self._count, self._depth, self._timeout_s = make, count, depth, timeout_s
        self._next = 0  # the first batch not yet asked for
        self._waiting: deque[Future[T]] = deque()
        self._pool: ThreadPoolExecutor | None = ThreadPoolExecutor(num_threads, "gnnpar-batch")

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

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop: what is not begun is dropped, what is being made is waited for.

        Raises:
            RunError: a batch was still being made when the deadline passed.
        """
        running = [future for future in self._stop() if not future.done()]
        if wait(running, self._timeout_s).not_done:
            raise RunError(f"a batch was still being made {self._timeout_s:g} s after the stop")

    def _ask(self) -> None:
        while self._pool is not None and self._next < self._count and len(self._waiting) < self._depth:
            self._waiting.append(self._pool.submit(self._make, self._next))
            self._next += 1

    def _stop(self) -> list[Future[T]]:
        waiting, pool = list(self._waiting), self._pool
        self._waiting.clear()
        self._pool = None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)
        return waiting
