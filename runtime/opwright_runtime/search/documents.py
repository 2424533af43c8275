"""What is searched: each op's words, read from the source of its generated class."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from opwright_runtime.search import synonyms, tf_names
from opwright_runtime.search.words import parts_of

#: A class's docstring: that of the op's own class is the one above its OP_NAME.
_DOCSTRING = re.compile(
    r'^class \w+\([^\n]*\):\n    """((?:(?!""").)*?)"""\n\n    OP_NAME = "([^"]+)"',
    re.MULTILINE | re.DOTALL,
)
#: How surely another expression than the op's name means the op.
_SYNONYM: Final = 0.9


#: Whether an op has a gradient, which its docstring says.
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
    #: Public functions of TensorFlow that run it, and how much of each it is: up to 1.
    callers: Mapping[str, float]

    @property
    def version(self) -> int:
        found = re.search(r"[Vv](\d+)$", self.name)
        return int(found[1]) if found else 1

    @property
    def family(self) -> str:
        """Its name without the version."""
        return re.sub(r"[Vv]\d+$", "", self.name)

    @property
    def is_removed(self) -> bool:
        return f"{self.name} was removed in GraphDef version" in self.description

    def expressions(self) -> Iterator[tuple[str, float]]:
        """What it is called, and how surely that means it: its name is the surest."""
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


def package() -> Any:
    """`opwright`, which is above this: looked up by name when it is used."""
    return import_module("opwright")


@cache
def documents() -> Mapping[str, Document]:
    """Every op of `opwright`, by its name."""
    callers = tf_names.callers()
    folder = Path(package().__file__).parent
    found = {}
    for name, (module, _) in import_module("opwright._table").OPS.items():
        *groups, last = module.split(".")[1:]
        source = folder.joinpath(*groups, f"{last}.py").read_text("utf-8")
        text = _docstring(source)
        summary, _, rest = text.partition("\n")
        found[name] = Document(
            *(name, f"opwright{module}", summary.strip(), _prose(rest)),
            callers.get(name, {}),
        )
    return found


def _docstring(source: str) -> str:
    found = _DOCSTRING.search(source)
    return found[1] if found else ""


def _prose(text: str) -> str:
    """A docstring without what every one has, and without code."""
    text = re.split(r"\n    (?:Example|Raises):\n", text)[0]
    return _GRADIENT.sub("", " ".join(text.split()))
