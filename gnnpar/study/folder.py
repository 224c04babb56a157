"""The folder of a sweep: where its jobs write, and what an earlier sweep has left there."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gnnpar.config import config_hash, read_config
from gnnpar.data.lock import file_lock, lock_holder
from gnnpar.errors import InputError, RunError
from gnnpar.study.grid import Job
from gnnpar.train.rundir import MARKS, dataset_title, write_atomically

__all__ = ["SweepFolder", "open_folder", "sweep_dir"]

LOCK = ".sweep.lock"
RECORD = "sweep.json"
LOG_LINES = 20


def sweep_dir(given: str | None, jobs: Sequence[Job]) -> Path:
    """`sweep.dir`, or a folder that the same jobs find again."""
    if given is not None:
        return Path(given).expanduser().absolute()
    digest = hashlib.sha256("".join(sorted(job.hash for job in jobs)).encode()).hexdigest()
    return Path("results/sweeps").absolute() / digest[:8]


@contextmanager
def open_folder(path: Path) -> Iterator[SweepFolder]:
    """Make the folder where there is none, and keep other sweeps out of it until the block ends.

    Raises:
        InputError: it cannot be written, is a run's directory, or another sweep uses it.
    """
    title = "sweep directory"
    if all((path / mark).exists() for mark in MARKS):
        raise InputError(title, [f"sweep.dir: {path} is the directory of a run; choose another folder"])
    try:
        path.mkdir(parents=True, exist_ok=True)
        Path(tempfile.mkdtemp(prefix=".gnnpar-", dir=path)).rmdir()  # permissions do not tell: root has all
    except OSError as error:
        reason = error.strerror or error
        raise InputError(
            title, [f"sweep.dir: cannot write to {path} ({reason}); choose another folder"]
        ) from error
    holder = lock_holder(path / LOCK)
    if holder is not None:
        raise InputError(
            title, [f"sweep.dir: {path} is in use by {holder}; wait for that sweep, or choose another folder"]
        )
    with file_lock(path / LOCK, timeout_s=0, what=f"sweep directory {path}"):
        yield SweepFolder(path)


@dataclass
class SweepFolder:
    """Run directories of jobs: those found by the hash of their configuration, others by name.

    Attributes:
        known: directories with a configuration, by its hash; finished ones win.
    """

    path: Path
    known: dict[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for folder in sorted(self.path.iterdir()):
            if not folder.name.startswith(".") and (folder / "config.yaml").exists():
                with contextlib.suppress(InputError):  # of another version, or damaged: not ours to use
                    key = config_hash(read_config(folder / "config.yaml"))
                    if key not in self.known or is_finished(folder):
                        self.known[key] = folder

    def run_dir(self, job: Job) -> Path:
        """Where a job writes, or has written."""
        if job.hash not in self.known:
            title = "".join(c if c.isalnum() or c in "-_." else "_" for c in dataset_title(job.config))
            self.known[job.hash] = self.path / f"{title}-{job.config.system}-{job.hash}"
        return self.known[job.hash]

    def finished(self, job: Job) -> bool:
        return is_finished(self.run_dir(job))

    def clear(self, job: Job) -> None:
        """Remove what a run leaves that was ended while it made its directory."""
        run_dir = self.run_dir(job)
        for part in run_dir.parent.glob(f".{run_dir.name}.*"):
            shutil.rmtree(part, ignore_errors=True)

    def log(self, job: Job) -> Path:
        """What a job prints."""
        return self.path / "logs" / f"{self.run_dir(job).name}.log"

    def last_lines(self, job: Job) -> list[str]:
        """End of a job's log."""
        try:
            with self.log(job).open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 16_384))
                text = file.read().decode(errors="replace")
        except OSError:
            return []
        return text.splitlines()[-LOG_LINES:]

    def write_record(self, record: object) -> None:
        """What became of the jobs, in `sweep.json`."""
        try:
            write_atomically(self.path / RECORD, json.dumps(record, indent=1) + "\n")
        except OSError as error:
            raise RunError(f"sweep: cannot write {self.path / RECORD} ({error.strerror or error})") from error


def is_finished(run_dir: Path) -> bool:
    """A run writes its summary last, and at once."""
    return (run_dir / "summary.json").exists()
