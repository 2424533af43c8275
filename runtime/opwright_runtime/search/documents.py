"""The documents that are searched: the texts of each op.

They are read from the source code of the generated classes, without importing these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from typing import Final

from opwright_runtime.search import synonyms, tf_names
from opwright_runtime.search.words import parts_of

#: The docstring of an op's class: a docstring that is followed by OP_NAME.
_DOCSTRING = re.compile(
    r'^class \w+\([^\n]*\):\n    """((?:(?!""").)*?)"""\n\n    OP_NAME = "([^"]+)"',
    re.MULTILINE | re.DOTALL,
)
#: The score of an expression that is not the op's name, if the name has the score 1.
_SYNONYM: Final = 0.9


#: The sentence in a docstring that says whether the op has a gradient.
_GRADIENT = re.compile(
    r"Gradient: (?:registered|none registered|declared not differentiable)\. ?"
)


@dataclass(frozen=True)
class Document:
    """The texts that describe an op."""

    name: str
    function: str
    summary: str
    description: str
    #: Public functions of TensorFlow that run the op. The value is the op's share of
    #: the function: 1 if the function runs no other op.
    callers: Mapping[str, float]

    @property
    def version(self) -> int:
        found = re.search(r"[Vv](\d+)$", self.name)
        return int(found[1]) if found else 1

    @property
    def family(self) -> str:
        """The name of the op without its version."""
        return re.sub(r"[Vv]\d+$", "", self.name)

    @property
    def is_removed(self) -> bool:
        return f"{self.name} was removed in GraphDef version" in self.description

    def expressions(self) -> Iterator[tuple[str, float]]:
        """Names and phrases for the op, each with a score: 1 for the op's own name."""
        own = parts_of(self.name)
        yield " ".join(own), 1.0
        yield "".join(own).lower(), 1.0
        for other in synonyms.of_name("".join(own)):
            yield other, _SYNONYM
        for other, share in synonyms.of_op(self.name).items():
            yield other, _SYNONYM * share
        for caller, share in self.callers.items():
            *owners, last = caller.split(".")
            yield last, _SYNONYM * share
            yield f"{owners[-1]} {last}", _SYNONYM * share
            for other in synonyms.of_name(last.replace("_", "")):
                yield other, _SYNONYM * share


@cache
def folder() -> Path:
    """The folder of the package `opwright`.

    The package is not imported, because it imports TensorFlow.
    """
    spec = find_spec("opwright")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("opwright is not installed", name="opwright")
    return Path(spec.origin).parent


@cache
def table() -> Mapping[str, tuple[str, str]]:
    """Every op's module and class, by its name: `opwright._table.OPS`."""
    ops: Mapping[str, tuple[str, str]] = run_path(str(folder() / "_table.py"))["OPS"]
    return ops


@cache
def documents() -> Mapping[str, Document]:
    """Every op of `opwright`, by its name."""
    callers = tf_names.callers()
    found = {}
    for name, (module, _) in table().items():
        *groups, last = module.split(".")[1:]
        source = folder().joinpath(*groups, f"{last}.py").read_text("utf-8")
        text = _docstring(source)
        summary, _, rest = text.partition("\n")
        found[name] = Document(
            *(name, f"opwright{module}", summary.strip(), _prose(rest)),
            callers.get(name, {}),
        )
    return found


@cache
def newest_versions() -> Mapping[str, Document]:
    """The newest op of each name without version, without removed ops."""
    kept = [one for one in documents().values() if not one.is_removed]
    kept.sort(key=lambda one: one.version)
    return {one.family: one for one in kept}


def _docstring(source: str) -> str:
    found = _DOCSTRING.search(source)
    return found[1] if found else ""


def _prose(text: str) -> str:
    """A docstring without code, and without the parts that every docstring has."""
    text = re.split(r"\n    (?:Example|Raises):\n", text)[0]
    return _GRADIENT.sub("", " ".join(text.split()))
