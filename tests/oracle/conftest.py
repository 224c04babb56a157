"""Runs the oracles' cases in bulk: those of one number of processes in a few calls of the pool."""

import pytest
from oracle.driver import Case, run_reference, run_trainer
from support.pool import RanksFailed

PER_CALL = 24


class Runs:
    """`runs[case]`: the trainer's records. `runs.reference(case)`: the reference's, in the same orders."""

    def __init__(self, pool, cases):
        self._pool, self._cases = pool, cases
        self._records, self._references = {}, {}

    def __getitem__(self, case):
        if case not in self._records:
            size = case.mesh.size
            todo = [c for c in self._cases if c.mesh.size == size and c not in self._records]
            todo = [case] + [c for c in todo if c != case]
            try:
                self._records |= run_trainer(self._pool, todo[:PER_CALL])
            except RanksFailed:  # one of them: find out for each case alone
                self._cases = []
                if len(todo) > 1:
                    return self[case]
                raise
        return self._records[case]

    def reference(self, case):
        records = self[case]
        orders = tuple(record.order for record in records)
        key = as_if_alone(case), orders
        if key not in self._references:
            self._references[key] = run_reference(case, orders)
        return self._references[key]


def as_if_alone(case):
    """The case without what must change no number."""
    from dataclasses import replace

    plain = {"split": None, "recompute": False, "sliced": False, "sequential": False}
    return replace(case, stages=1, threads=1, schedule="gpipe", **plain)


@pytest.fixture(scope="session")
def runs(pool, request):
    collected = [getattr(item, "callspec", None) for item in request.session.items]
    values = [value for spec in collected if spec is not None for value in spec.params.values()]
    return Runs(pool, list(dict.fromkeys(value for value in values if isinstance(value, Case))))
