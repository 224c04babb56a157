"""`docs/configuration.md`, written from the docstrings of the schema."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from typing import Any

from gnnpar.config import schema
from gnnpar.config.compose import group_choices
from gnnpar.config.constraints import describe
from gnnpar.config.schema import RunConfig
from gnnpar.config.section import Section, dump, key_kinds

__all__ = ["configuration_page", "field_docs"]

HEAD = """# Configuration

Written from `gnnpar/config/` by `make docs`.

A run is described by config groups and keys, as in
`gnnpar train model=gcnii system=gnnpipe model.num_layers=64 train.lr=0.01`. A group picks a file of
`configs/`, which sets some keys; a key given on the command line wins. `config.yaml` in a run's directory
holds every key as it was.

| group | choices |
|---|---|
"""


def configuration_page() -> str:
    """The page, as Markdown."""
    lines = [
        HEAD + "\n".join(f"| `{name}=` | {', '.join(names)} |" for name, names in group_choices().items())
    ]
    docs, kinds, defaults = dict(field_docs()), key_kinds(RunConfig), _flat(dump(RunConfig()))
    section = None
    for key, kind in kinds.items():
        prefix = key.rpartition(".")[0]
        if prefix != section:
            section = prefix
            lines += ["", f"## {prefix or 'the run'}", "", _section_doc(prefix), ""]
            lines += ["| key | value | default | meaning |", "|---|---|---|---|"]
        lines.append(f"| `{key}` | {describe(kind)} | {_text(defaults[key])} | {docs[key]} |")
    return "\n".join(lines) + "\n"


def field_docs() -> Iterator[tuple[str, str]]:
    """Docstring of every key that has one, by dotted name."""
    for section in _sections():
        (node,) = ast.parse(inspect.getsource(section)).body
        assert isinstance(node, ast.ClassDef)
        for field, doc in zip(node.body, node.body[1:], strict=False):
            text = _string(doc)
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and text:
                yield f"{section.section}.{field.target.id}".lstrip("."), " ".join(text.split())


def _sections() -> list[type[Section]]:
    """The classes of all sections, that of a run included."""
    found = (getattr(schema, name) for name in schema.__all__)
    return [one for one in found if issubclass(one, Section)]


def _string(node: ast.stmt) -> str | None:
    if (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ):
        return node.value.value
    return None


def _section_doc(section: str) -> str:
    (found,) = (one for one in _sections() if one.section == section)
    return inspect.getdoc(found) or ""


def _flat(tree: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        inner = (
            {f"{name}.{key}": one for key, one in value.items()} if isinstance(value, dict) else {name: value}
        )
        flat |= inner
    return flat


def _text(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
