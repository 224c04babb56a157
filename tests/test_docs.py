"""The guides of docs/: Python runs, commands run or are at least understood.

A block after `<!-- run -->` is run, in order, in one folder a page. Of other commands of gnnpar the
configuration is composed. Python blocks of a page are one script, but for those after `<!-- shown -->`.
"""

import logging
import re
import shlex
from pathlib import Path

import pytest

from gnnpar.cli.main import COMMANDS, main
from gnnpar.config import compose
from gnnpar.study.grid import MOST_JOBS, read_grid

DOCS = Path(__file__).resolve().parents[1] / "docs"
GUIDES = ("quickstart", "bring-your-own-gnn", "bring-your-own-graph", "choose-a-system")
BLOCK = re.compile(r"(?:<!-- (?P<mark>\w+) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)```", re.DOTALL)


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNPAR_DATA", str(tmp_path / "home"))
    root = logging.getLogger("gnnpar")
    before = root.handlers, root.level, root.propagate
    yield
    root.handlers, root.propagate = before[0], before[2]
    root.setLevel(before[1])


def understood(command):
    """Whether a command that is not run is one: its configuration composes, its subcommand exists."""
    words = shlex.split(command)
    if words[:1] != ["gnnpar"]:
        words = words[words.index("gnnpar") :] if "gnnpar" in words else []
    if not words:
        return
    assert words[1] in COMMANDS, command
    if "--help" in words:
        assert main(words[1:]) == 0
    elif words[1] == "train":
        compose(words[2:])
    elif words[1] == "sweep":
        grid = read_grid(words[2:])
        assert not grid.faults, command
        ends = {tuple(f"{key}={values[end]}" for key, values in grid.axes.items()) for end in (0, -1)}
        assert len(ends) == 2 and MOST_JOBS > 1
        for overrides in ends:
            compose(overrides)


@pytest.mark.slow
@pytest.mark.parametrize("name", GUIDES)
def test_a_guide_does_what_it_says(name, capsys):
    page = (DOCS / f"{name}.md").read_text()
    blocks = list(BLOCK.finditer(page))
    assert len(blocks) == page.count("```") / 2 and len(blocks) >= 3
    names = {"__name__": "__main__"}
    for block in blocks:
        mark, language, text = block["mark"], block["language"], block["text"]
        assert mark in (None, "run", "shown") and language in ("bash", "python")
        if language == "python":
            code = compile(text, f"docs/{name}.md", "exec")
            if mark != "shown":
                exec(code, names)
            continue
        for command in filter(None, text.splitlines()):
            if mark == "run":
                words = shlex.split(command)
                assert words[0] == "gnnpar" and main(words[1:]) == 0, command
            else:
                understood(command)
    if name == "quickstart":
        assert "| runs | validation | test |" in capsys.readouterr().out
        assert Path("time.svg").exists() and Path("runs/first/summary.json").exists()


def test_links_lead_somewhere():
    for page in DOCS.glob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (DOCS / target).exists(), (page.name, target)
