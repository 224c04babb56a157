"""`gnnpar report`: one page about one run, or several side by side."""

from __future__ import annotations

from pathlib import Path

from gnnpar.cli.options import split_options, wants_help
from gnnpar.errors import InputError

__all__ = ["main"]

USAGE = """usage: gnnpar report RUN [RUN …] [format=html|md] [out=FILE] [figures=FOLDER] [trace=FILE]

Writes one self-contained page about runs: where time and bytes go and why ranks are idle, the timeline of a
step, curves, ages of histories, environment and command. Several runs stand side by side.

  RUN               run directory, such as results/runs/…; the run may still go on, or have been cut off
  format=html|md    a page with an interactive timeline, or the tables as Markdown
  out=FILE          default: report.html (report.md) in the run directory; of several runs, in this folder
  figures=FOLDER    also write figures there, as PDF and SVG
  trace=FILE        also write the trace of a run for ui.perfetto.dev (train does it at the end of a run)

Runs with trace.enabled=true tell most. docs/report.md tells how to read it.
"""

OPTIONS = {"format": ("html", "md"), "out": (), "figures": (), "trace": ()}


ENDINGS = {"out": (".html", ".md"), "trace": (".json",)}
"""Option that names a file to write → how it must end."""


def main(argv: list[str]) -> int:
    """Run the subcommand; the exit code. Raises `InputError` for the caller to print."""
    if wants_help(argv):
        print(USAGE, end="")
        return 0
    options, names = split_options(argv, OPTIONS)
    wrong = [
        f"{name!r}: there is no such option" for name in names if "=" in name and not Path(name).exists()
    ]
    if wrong:
        raise InputError("gnnpar report", [f"{text}; options are {', '.join(OPTIONS)}" for text in wrong])
    if not names:
        raise InputError("gnnpar report", ["give at least one run directory, such as results/runs/…"])
    faults = [
        f"{key}: {given} does not end in {' or '.join(ends)}, and might be another file of a run; use one "
        "that does"
        for key, ends in ENDINGS.items()
        if (given := options[key]) and not given.endswith(ends)
    ]
    reserved = ("summary.json", "env.json", "about.json")
    if options["trace"] and Path(options["trace"]).name in reserved:
        faults.append(f"trace: {options['trace']} is another file of a run; choose another name")
    if faults:
        raise InputError("gnnpar report", faults)
    if options["trace"] and len(names) > 1:
        raise InputError("gnnpar report", ["trace: takes one run"])

    from gnnpar.report.run import read_runs

    folders = [Path(name) for name in dict.fromkeys(names)]
    runs = read_runs(folders)

    from gnnpar.report.markdown import markdown_page
    from gnnpar.report.measure import measure
    from gnnpar.report.page import html_page

    pairs = [(run, measure(run)) for run in runs]
    kind = options["format"]
    out = Path(options["out"] or (folders[0] if len(folders) == 1 else Path()) / f"report.{kind}")
    try:
        out.write_text(html_page(pairs) if kind == "html" else markdown_page(pairs), encoding="utf-8")
        print(out)
        if options["figures"]:
            from gnnpar.report.figures import write_figures

            for path in write_figures(pairs, Path(options["figures"])):
                print(path)
        if options["trace"]:
            from gnnpar.trace.perfetto import write_perfetto

            if not runs[0].logs:
                raise InputError("gnnpar report", [f"trace: {folders[0]} was not traced"])
            write_perfetto(runs[0].logs, Path(options["trace"]))
            print(options["trace"])
    except OSError as error:
        raise InputError("gnnpar report", [f"cannot write {error.filename}: {error.strerror}"]) from None
    return 0
