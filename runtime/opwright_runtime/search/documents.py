"""What is searched: each op's words, read from the source of its generated class."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

from opwright_runtime.search import tf_names
from opwright_runtime.search.synonyms import stem

#: A class's docstring: that of the op's own class is the one above its OP_NAME.
_DOCSTRING = re.compile(
    r'^class \w+\([^\n]*\):\n    """((?:(?!""").)*?)"""\n\n    OP_NAME = "([^"]+)"',
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Document:
    """What is known of an op in words."""

    name: str
    function: str
    summary: str
    description: str
    #: Public functions of TensorFlow that call it.
    tf_names: tuple[str, ...]

    @property
    def words(self) -> str:
        """The parts of its name: `batch mat mul v3 batchmatmul`."""
        return " ".join(split(self.name))

    @cached_property
    def stems(self) -> frozenset[str]:
        """The words of its name alone."""
        return frozenset(stem(part.lower()) for part in parts_of(self.name))

    @property
    def version(self) -> int:
        found = re.search(r"V(\d+)$", self.name)
        return int(found[1]) if found else 1

    @property
    def family(self) -> str:
        """Its name without the version."""
        return re.sub(r"V\d+$", "", self.name)

    @property
    def is_removed(self) -> bool:
        return f"{self.name} was removed in GraphDef version" in self.description


def parts_of(name: str) -> list[str]:
    """A name's words, as they are written."""
    name = re.sub(r"V\d+$", "", name.rpartition(">")[2])
    return re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+[A-Za-z]?(?![a-z])|\d+", name)


def split(name: str) -> Iterator[str]:
    """A name's words, and those that stand beside each other as one."""
    parts = parts_of(name)
    yield from (part.lower() for part in parts)
    yield from (f"{a}{b}".lower() for a, b in pairwise(parts))
    if len(parts) > 2:
        yield "".join(parts).lower()


def package() -> Any:
    """`opwright`, which is above this: so it is found by name, when it is asked for."""
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
            callers.get(name, ()),
        )
    return found


def _docstring(source: str) -> str:
    found = _DOCSTRING.search(source)
    return found[1] if found else ""


def _prose(text: str) -> str:
    """A docstring without what every one has, and without code."""
    text = re.split(r"\n    (?:Example|Raises):\n", text)[0]
    return " ".join(text.split())
