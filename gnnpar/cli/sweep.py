"""`gnnpar sweep`: one `gnnpar train` for every combination of choices, and a table of what they found."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gnnpar.cli.options import split_options, wants_help
from gnnpar.errors import InputError, RunError
from gnnpar.study.grid import Job, expand, raise_faults, read_grid

if TYPE_CHECKING:
    from gnnpar.study.sweep import Outcome

__all__ = ["main"]

USAGE = """usage: gnnpar sweep [GROUP=CHOICES …] [KEY=CHOICES …] [sweep=NAME|FILE] [format=…]

Runs `gnnpar train` for every combination of choices, several at a time, and prints a table over seeds.
`a,b` and range(start,stop[,step]) are choices, stop excluded; [a,b] is one value, and so is quoted text.

  sweep.dir=DIR       run directories of the jobs; default: results/sweeps/<hash of the jobs>
  sweep.jobs=N        jobs at a time, at most; default: as many as the cores allow, one thread a process
  sweep.cores=N       cores for all jobs together; default: all. A job needs processes × threads
  sweep.memory_gb=X   memory for all jobs together, in GiB; default: not watched
  format=FORM         of the table: table, md, csv, latex or json
  sweep=NAME|FILE     choices from configs/sweep/NAME.yaml or a file: KEY: VALUE, a list for choices

  gnnpar sweep seed='range(10)' system=gnnpipe,full_batch model.num_layers=16,32 sweep.jobs=2
  gnnpar sweep sweep=depth model=gcnii,gcn dataset=digits

All configurations are checked before the first job starts. Called again, it finds finished jobs and runs the
others: those that Ctrl-C has cut short, failed ones too. Exit code 0: all are finished; 1: some failed.
"""


def main(argv: list[str]) -> int:
    """Run the subcommand; the exit code. Raises `InputError` and `RunError` for the caller to print."""
    if wants_help(argv):
        print(USAGE, end="")
        return 0
    chosen, overrides = split_options(argv, {"format": ("table", "md", "csv", "latex", "json")})
    grid = read_grid(overrides)
    jobs = expand(grid)

    # torch and what stands on it, only after the configurations are known to be good
    from gnnpar.dist.launch import counted
    from gnnpar.dist.launched import under_launcher
    from gnnpar.study.board import open_board
    from gnnpar.study.budget import Budget
    from gnnpar.study.folder import open_folder, sweep_dir
    from gnnpar.study.sweep import run_sweep

    if under_launcher():
        text = "runs once, and starts the processes of its jobs itself; call it without torchrun or srun"
        raise InputError("sweep", [text])
    budget = Budget(grid.options)
    _check(jobs, budget.faults(jobs))
    record: dict[str, object] = {"command": ["gnnpar", "sweep", *argv]}
    with open_folder(sweep_dir(grid.options.dir, jobs)) as folder:
        print(f"{counted(len(jobs), 'job')} in {folder.path}", file=sys.stderr)
        with open_board(len(jobs)) as board:
            outcomes = run_sweep(jobs, folder, budget, board, record=record)
    _print_results(outcomes, chosen["format"])
    failed = [outcome for outcome in outcomes if outcome.state not in ("finished", "found")]
    if failed:
        raise RunError(_failures(failed, len(outcomes)))
    return 0


def _check(jobs: Sequence[Job], before: Sequence[str]) -> None:
    """What can be checked without data and without a process, beyond each configuration by itself."""
    from gnnpar.dist.context import check_device
    from gnnpar.errors import Faults
    from gnnpar.train.order import schedule_faults

    found: dict[str, list[str]] = {}
    for job in jobs:
        faults = Faults("job")
        with faults.collected():
            check_device(job.config.device)
        for fault in [*faults, *schedule_faults(job.config)]:
            found.setdefault(fault, []).append(job.label)
    raise_faults(found, len(jobs), before)


def _print_results(outcomes: Sequence[Outcome], form: str) -> None:
    from gnnpar.cli.results import print_runs
    from gnnpar.study.runs import read_runs

    finished = [outcome.run_dir for outcome in outcomes if outcome.state in ("finished", "found")]
    print_runs(read_runs(finished), form)


def _failures(failed: Sequence[Outcome], total: int) -> str:
    lines = [f"sweep: {len(failed)} of {total} jobs did not finish; call it again to run them again"]
    for outcome in failed:
        lines.append(f"  {outcome.label}: {outcome.state}, exit code {outcome.exit_code}")
        lines += [f"    | {line}" for line in outcome.said[-5:]]
    return "\n".join(lines)
