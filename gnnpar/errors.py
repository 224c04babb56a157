"""Errors that a user can act on: each names the cause and the cure, and lists every fault at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

__all__ = ["Faults", "GnnparError", "InputError", "RunError"]


class GnnparError(Exception):
    """Base of every error that gnnpar raises on purpose."""


class InputError(GnnparError, ValueError):
    """A mistake in what the user gave (config, data, model). The command line exits with code 2.

    Args:
        title: what was being read or checked, e.g. ``"dataset cora.npz"``.
        faults: one line per fault, each naming the key or file, the cause and the cure.
    """

    def __init__(self, title: str, faults: Iterable[str]) -> None:
        self.title = title
        self.faults = tuple(faults)
        super().__init__(self._text())

    def _text(self) -> str:
        if len(self.faults) == 1:
            return f"{self.title}: {self.faults[0]}"
        lines = [f"{self.title}: {len(self.faults)} faults"]
        lines += [f"  - {fault}" for fault in self.faults]
        return "\n".join(lines)

    def __reduce__(self) -> tuple[type[InputError], tuple[str, tuple[str, ...]]]:
        return InputError, (self.title, self.faults)


class RunError(GnnparError, RuntimeError):
    """A run that failed after it started: a dead peer, an overrun deadline, a diverging loss."""


class Faults:
    """Collects faults, so that a user sees all of them in one message.

    Example:
        >>> faults = Faults("config")
        >>> faults.add("train.lr: must be positive, got -1")
        >>> faults.raise_if_any()
        Traceback (most recent call last):
        gnnpar.errors.InputError: config: train.lr: must be positive, got -1
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self._faults: list[str] = []

    def add(self, fault: str) -> None:
        self._faults.append(fault)

    def extend(self, faults: Iterable[str]) -> None:
        self._faults.extend(faults)

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Takes up the faults of an `InputError` raised inside instead of letting it through."""
        try:
            yield
        except InputError as error:
            self.extend(f"{error.title}: {fault}" for fault in error.faults)

    def __bool__(self) -> bool:
        return bool(self._faults)

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._faults)

    def raise_if_any(self) -> None:
        if self._faults:
            raise InputError(self.title, self._faults)
