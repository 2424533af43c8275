"""Text of opdefs as MyST."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping

#: What tells an op's name from a word: capitals or digits within.
_NAME = re.compile(r"\b[A-Z][A-Za-z0-9]*[a-z0-9][A-Z0-9][A-Za-z0-9]*\b|\b[A-Z][a-z]+\b")
_WORDS = frozenset({"All", "Any", "Complex", "For", "If", "Size", "Where", "While"})
_SENTENCE = re.compile(r"(?:^|[.:;!?]\s+|\n\n)$")
#: What CommonMark and MyST may read as markup, within a line and where one begins.
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~$^&])|^([-+=:%]|\d+(?=[.)]))")


def escape(text: str) -> str:
    """Plain text of one line."""
    return _MARKUP.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    if found[2] is not None and found[2].isdigit():
        return f"{found[2]}\\"  # A list begins with its number and a period.
    return f"\\{found[0]}"


def code(text: str) -> str:
    """Text of one line in the type of code, in a cell of a table too."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}" if text.strip() else ""


def cell(text: str) -> str:
    """Text for a table, whose columns `|` separates."""
    return re.sub(r"(?<!\\)\|", r"\\|", text)


def reference(name: str, groups: Mapping[str, str]) -> str:
    """A link to an op's class."""
    return f"{{py:class}}`~opwright.{groups[name]}.{name}`"


def inline(text: str, groups: Mapping[str, str], own: str) -> str:
    """A sentence: backquoted words as code, names of other ops as links."""
    parts = re.split(r"`([^`]*)`", text)
    made = []
    for at, part in enumerate(parts):
        made.append(code(part) if at % 2 else _linked(part, groups, own))
    return "".join(made)


def _linked(text: str, groups: Mapping[str, str], own: str) -> str:
    made, end = [], 0
    for found in _NAME.finditer(text):
        name = found[0]
        if name not in groups or name == own:
            continue
        if name[1:].islower() and _is_word(text, found):
            continue
        made.append(escape(text[end : found.start()]))
        made.append(reference(name, groups))
        end = found.end()
    made.append(escape(text[end:]))
    return "".join(made)


def _is_word(text: str, name: re.Match[str]) -> bool:
    """Whether a name is a word: "All of them" has one, "Mean divides" none."""
    if not _SENTENCE.search(text[: name.start()]):
        return False
    return name[0] in _WORDS or not re.match(r" [a-z]+s\b", text[name.end() :])


def prose(text: str, groups: Mapping[str, str], own: str) -> str:
    """A description: paragraphs, formulas and lists that keep their lines."""
    made = []
    for block in text.strip("\n").split("\n\n"):
        rows = block.split("\n")
        if not block.strip():
            continue
        if rows[0].startswith(("  ", "|")):
            made.append(f"```text\n{textwrap.dedent(block)}\n```")
        elif rows[0].startswith("- "):
            items = re.split(r"\n- ", block[2:])
            texts = (inline(" ".join(item.split()), groups, own) for item in items)
            made.append("\n".join(f"- {one}" for one in texts))
        else:
            made.append(inline(" ".join(block.split()), groups, own))
    return "\n\n".join(made)
