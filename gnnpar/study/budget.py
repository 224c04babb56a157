"""`Budget`: how many jobs fit beside each other, by cores and by memory."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from gnnpar.config import RunConfig, config_hash
from gnnpar.config.schema import TraceConfig
from gnnpar.dist import Mesh
from gnnpar.dist.launch import num_cores
from gnnpar.study.grid import Job
from gnnpar.study.options import SweepConfig

__all__ = ["Budget", "seedless_hash"]


def seedless_hash(config: RunConfig) -> str:
    """Equal for runs that differ only in their seed, or in what is recorded of them."""
    return config_hash(replace(config, seed=0, trace=TraceConfig()))


@dataclass
class Budget:
    """Cores and memory of a sweep, and what is known of its jobs' memory.

    A job needs processes × threads cores. Where neither `launch.threads` nor `OMP_NUM_THREADS` says how many
    threads, it gets an equal share if `sweep.jobs` says how many run beside it, and else one a process. A job
    that needs more cores than the machine has runs alone, as `gnnpar train` would run it; one that needs more
    than `sweep.cores` is a fault.

    What memory a job needs is known from jobs that differ in the seed only; else it is taken to be the most
    that any job took. While nothing is known, one job runs alone.

    Attributes:
        peaks: most bytes that jobs held, by `seedless_hash`; of jobs that have ended.
        held: bytes that running jobs hold, by hash.
        alone: hashes of jobs that must run alone.
    """

    options: SweepConfig
    peaks: dict[str, int] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)
    alone: set[str] = field(default_factory=set)

    @property
    def cores(self) -> int:
        return self.options.cores or num_cores()

    @property
    def memory(self) -> int | None:
        """Bytes; None: not watched."""
        limit = self.options.memory_gb
        return None if limit is None else int(limit * 2**30)

    def threads(self, job: Job) -> int:
        """Threads of each process of a job."""
        given = os.environ.get("OMP_NUM_THREADS", "")
        if job.config.launch.threads is not None:
            return job.config.launch.threads
        if given.isdecimal() and int(given) > 0:
            return int(given)
        beside = self.options.jobs
        return max(1, self.cores // beside // Mesh.of(job.config).size) if beside else 1

    def needs(self, job: Job) -> int:
        """Cores of a job."""
        return Mesh.of(job.config).size * self.threads(job)

    def faults(self, jobs: Iterable[Job]) -> list[str]:
        """Jobs that need more than `sweep.cores`."""
        found: dict[str, None] = {}
        for job in jobs:
            if self.options.cores is not None and self.needs(job) > self.options.cores:
                processes, threads = Mesh.of(job.config).size, self.threads(job)
                found[
                    f"sweep.cores: {self.options.cores}, but processes × threads of a job are {processes} × "
                    f"{threads}; raise it, or leave it out to run such jobs alone"
                ] = None
        return list(found)

    def fits(self, job: Job, running: Collection[Job]) -> bool:
        """Whether a job may start beside those that run."""
        if not running:
            return True
        together = [job, *running]
        most = self.options.jobs
        if most is None and any(one.config.device != "cpu" for one in together):
            most = 1  # cores say nothing of GPUs
        if most is not None and len(together) > most:
            return False
        if sum(map(self.needs, together)) > self.cores:
            return False
        return self.memory is None or sum(map(self.memory_of, together)) <= self.memory

    def memory_of(self, job: Job) -> int:
        """Bytes that a job is taken to need, where memory is watched."""
        limit = self.memory or 0
        if job.hash in self.alone:
            return limit
        known = self.peaks.get(seedless_hash(job.config))
        expected = max(self.peaks.values(), default=limit) if known is None else known
        return max(expected, self.held.get(job.hash, 0))

    def ended(self, job: Job, num_bytes: int) -> None:
        """Note what a job held at most."""
        key = seedless_hash(job.config)
        self.peaks[key] = max(self.peaks.get(key, 0), num_bytes)
        self.held.pop(job.hash, None)
