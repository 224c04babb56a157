"""The report as Markdown: its tables, for a README or an issue."""

from __future__ import annotations

from collections.abc import Sequence

from gnnpar.report import facts
from gnnpar.report.measure import Measured
from gnnpar.report.run import RunRecord

__all__ = ["markdown_page"]


def markdown_page(pairs: Sequence[tuple[RunRecord, Measured | None]]) -> str:
    """One run, or several side by side."""
    runs = [run for run, _ in pairs]
    parts = [f"# {runs[0].name if len(runs) == 1 else f'{len(runs)} runs'}"]
    parts += [f"> {run.name}: {note}" for run in runs for note in run.notes]
    parts.append(_table(["", *(run.name for run in runs)], facts.summary_rows(runs)))
    taxonomy = facts.taxonomy_rows(runs)
    if taxonomy:
        parts.append("## Kind of parallelism, after Besta and Hoefler")
        parts.append(_table(["", *(run.name for run in runs)], taxonomy))
    for run, measured in pairs:
        of = f", {run.name}" if len(runs) > 1 else ""
        if measured is not None:
            ranks = [f"rank {rank.rank}" for rank in measured.breakdown]
            parts.append(f"## Where an epoch goes{of}")
            parts.append(f"Milliseconds, mean of {len(measured.epochs)} epochs.")
            parts.append(_table(["", *ranks, "of all"], facts.breakdown_rows(measured)))
            parts.append(f"## What if{of}")
            parts.append(_table(["a step", "ms", "ratio"], facts.what_if_rows(measured)))
            parts.append(f"## Critical path{of}")
            parts.append(_table(["", "ms", "share"], facts.path_rows(measured)))
            predicted = facts.prediction_rows(measured)
            if predicted:
                parts.append(f"## Predicted against measured{of}")
                parts.append(_table(["last action of", "predicted ms", "measured ms", "error"], predicted))
        parts.append(f"## Command{of}\n\n```\n{run.command}\n```")
    return "\n\n".join(parts) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["-", *("-:" for _ in head[1:])], *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
