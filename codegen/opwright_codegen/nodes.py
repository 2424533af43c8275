"""Reads YAML into nodes, and nodes into plain values, strictly.

YAML guesses the meaning of plain text: `no` is false, `010` is eight, `1:30` is ninety.
Here a value that is not written in its one unambiguous form is a problem. No content of
a file raises an exception.
"""

from __future__ import annotations

import difflib
import math
import re
import reprlib
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import yaml

from opwright_codegen.problems import Problem

R = TypeVar("R")
#: A function that reads a node. The text names the node in problems.
Read: TypeAlias = Callable[[yaml.Node, str], R | None]

_TAG = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")
_INFINITY = re.compile(r"[-+]?\.(?:inf|Inf|INF)\Z")
_EXPONENT = re.compile(r"[-+]?[0-9.]+[eE][-+]?[0-9]+\Z")
_INT64 = range(-(2**63), 2**63)
#: The length of the longest 64-bit integer, with the sign.
_MAX_DIGITS = 20
#: The depth of nested lists and mappings. Some versions of the parser have no limit.
_MAX_DEPTH = 100

if TYPE_CHECKING or not hasattr(yaml, "CSafeLoader"):
    _Parser = yaml.SafeLoader
else:
    from yaml.composer import Composer
    from yaml.cyaml import CParser
    from yaml.resolver import Resolver

    class _Parser(Composer, CParser, Resolver):
        """libyaml's parser under Python's composer.

        libyaml's own composer crashes the process for a deeply nested file.
        """

        def __init__(self, text: str) -> None:
            CParser.__init__(self, text)
            Composer.__init__(self)
            Resolver.__init__(self)


class _Loader(_Parser):
    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = cast("Any", self).peek_event()
            raise yaml.MarkedYAMLError(
                problem=f"the alias *{event.anchor}; write out what it stands for,"
                " or put a text that begins with * in quotes",
                problem_mark=event.start_mark,
            )
        if self._depth > _MAX_DEPTH:
            raise yaml.MarkedYAMLError(
                problem=f"nested too deeply, more than {_MAX_DEPTH} lists or mappings",
                problem_mark=cast("Any", self).peek_event().start_mark,
            )
        self._depth += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


class Reader:
    """Reads the nodes of one file and collects the problems with them.

    Each method reads a value of one kind. For a node of another kind, it reports a
    problem and returns None.
    """

    def __init__(self, path: Path, op: str) -> None:
        self.path = path
        self.op = op
        self.problems: list[Problem] = []

    def problem(self, node: yaml.Node, message: str) -> None:
        mark = node.start_mark
        self.problem_at(mark.line + 1, mark.column + 1, message)

    def problem_at(self, line: int, column: int, message: str) -> None:
        self.problems.append(Problem(str(self.path), line, column, self.op, message))

    def problem_within(self, node: yaml.Node, offset: int, message: str) -> None:
        """Reports a problem at an offset in a text.

        Some YAML styles do not tell at which place the offset is. The problem then has
        the place of the node.
        """
        mark, end = node.start_mark, node.end_mark
        inside = {None: 0, "": 0, "'": 1, '"': 1}.get(getattr(node, "style", None))
        if inside is None or mark.line != end.line:
            inside, offset = 0, 0
        self.problem_at(mark.line + 1, mark.column + 1 + inside + offset, message)

    def compose(self, content: bytes) -> yaml.Node | None:
        """Parses a file that has exactly one document."""
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            self.problem_at(
                *_position(content, error.start),
                f"not UTF-8: byte 0x{content[error.start]:02x}; save it as UTF-8",
            )
            return None
        try:
            node = yaml.compose(text, Loader=_Loader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            rows = text.split("\n")[line - 1 : line]
            why = _why(error, "".join(rows)[column - 1 : column])
            self.problem_at(line, column, f"not YAML as opdefs take it: {why}")
            return None
        except yaml.reader.ReaderError as error:
            what = f"a character that YAML does not take: {error.reason}"
            self.problem_at(*_position(content, error.position), what)
            return None
        if node is None:
            self.problem_at(1, 1, "the file is empty")
        return node

    def wrong(self, node: yaml.Node, what: str, wanted: str, hint: str = "") -> None:
        kind = str(node.tag).removeprefix(_TAG)
        came = {"map": "a mapping", "seq": "a list", "null": "nothing"}.get(kind)
        if came is None and isinstance(node, yaml.ScalarNode):
            came = f"{'text' if kind == 'str' else kind} {repr_short(node.value)}"
            if wanted == "text":
                hint = "; put it in quotes"
        elif came is None:
            came = f"what is tagged {kind}"
        self.problem(node, f"{what} must be {wanted}, not {came}{hint}")

    def text(self, node: yaml.Node, what: str, hint: str = "") -> str | None:
        if _is_scalar(node, "str"):
            return str(node.value)
        self.wrong(node, what, "text", hint)
        return None

    def filled(self, node: yaml.Node, what: str) -> str | None:
        text = self.text(node, what)
        if text is not None and not text.strip():
            self.problem(node, f"{what} is empty; leave the key out instead")
            return None
        return text

    def boolean(self, node: yaml.Node, what: str) -> bool | None:
        if _is_scalar(node, "bool") and node.value.lower() in ("true", "false"):
            return bool(node.value.lower() == "true")
        self.wrong(node, what, "true or false")
        return None

    def integer(self, node: yaml.Node, what: str, within: range = _INT64) -> int | None:
        if not _is_scalar(node, "int"):
            self.wrong(node, what, "an integer")
        elif not _INTEGER.match(node.value):
            self.wrong(node, what, "an integer in plain decimal digits")
        elif len(node.value) > _MAX_DIGITS or int(node.value) not in within:
            text = repr_short(node.value)
            self.problem(node, f"{what} is {text}, which does not fit into 64 bits")
        else:
            return int(node.value)
        return None

    def number(self, node: yaml.Node, what: str) -> float | None:
        if _is_scalar(node, "float") and _INFINITY.match(node.value):
            return float(node.value.replace(".", ""))
        if _is_scalar(node, "float") and node.value.lower() == ".nan":
            return math.nan
        if _is_scalar(node, "float", "int") and (
            _FLOAT.match(node.value) or _INTEGER.match(node.value)
        ):
            return float(node.value)
        hint = ""
        if isinstance(node, yaml.ScalarNode) and _EXPONENT.match(node.value):
            hint = "; YAML wants a point and a signed exponent: 1.0e-5, 1.0e+5"
        self.wrong(node, what, "a number", hint)
        return None

    def single(self, node: yaml.Node, what: str) -> float | None:
        """Reads a number that a 32-bit float can represent."""
        value = self.number(node, what)
        try:
            struct.pack("<f", value or 0.0)
        except OverflowError:
            self.problem(node, f"{what} is {value}, which does not fit into 32 bits")
            return None
        return value

    def matching(self, pattern: re.Pattern[str], form: str) -> Read[str]:
        def read(node: yaml.Node, what: str) -> str | None:
            text = self.text(node, what)
            if text is not None and not pattern.match(text):
                self.problem(node, f"{what} is {repr_short(text)}; it must be {form}")
                return None
            return text

        return read

    def one_of(
        self,
        allowed: Iterable[str],
        kind: str,
        meant: Callable[[str], str | None] = lambda text: None,
    ) -> Read[str]:
        """Reads one of `allowed`. `meant` maps other texts to these, for hints."""
        choices = tuple(allowed)

        def read(node: yaml.Node, what: str) -> str | None:
            text = self.text(node, what)
            if text is None or text in choices:
                return text
            self.problem(
                node,
                f"{what} is {repr_short(text)}, which is no {kind}"
                f"{did_you_mean(text, choices, meant(text))};"
                f" allowed: {', '.join(choices)}",
            )
            return None

        return read

    def many(self, read: Read[R]) -> Read[tuple[R, ...]]:
        def read_all(node: yaml.Node, what: str) -> tuple[R, ...] | None:
            if not (isinstance(node, yaml.SequenceNode) and _is(node, "seq")):
                self.wrong(node, what, "a list")
                return None
            items = [
                read(item, f"item {position} of {what}")
                for position, item in enumerate(node.value, 1)
            ]
            return tuple(item for item in items if item is not None)

        return read_all

    def mapping(self, node: yaml.Node, what: str) -> Mapping | None:
        if isinstance(node, yaml.MappingNode) and _is(node, "map"):
            return Mapping(self, node, what)
        self.wrong(node, what, "a mapping")
        return None


class Mapping:
    """A YAML mapping whose keys are read by `take`.

    `close` must be called last. It reports keys that no call of `take` named.
    """

    def __init__(self, reader: Reader, node: yaml.MappingNode, what: str) -> None:
        self.node = node
        #: The name of the mapping in problems.
        self.what = what
        self._reader = reader
        self._known: list[str] = []
        self._items: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            name = reader.text(key, f"a key of {what}")
            if name is None:
                continue
            if name in self._items:
                first = self._items[name][0].start_mark.line + 1
                reader.problem(
                    key,
                    f"duplicate key {repr_short(name)} in {what};"
                    f" first on line {first}",
                )
                continue
            self._items[name] = (key, value)

    def __contains__(self, key: str) -> bool:
        return key in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def at(self, key: str) -> yaml.Node:
        """The node for a problem with `key`: its value, or else the mapping."""
        return self._items[key][1] if key in self._items else self.node

    def take(self, key: str, read: Read[R], needed: bool = False) -> R | None:
        self._known.append(key)
        if key in self._items:
            return read(self._items[key][1], f"{key!r} of {self.what}")
        if needed:
            self._reader.problem(self.node, f"{self.what} lacks the key {key!r}")
        return None

    def close(self) -> None:
        """Reports the keys that no call of `take` named."""
        for name, (key, value) in self._items.items():
            if name in self._known:
                continue
            hint = did_you_mean(name, self._known)
            if not hint and self.node.flow_style and _is(value, "null"):
                # As in {doc: Samples, one row each}.
                hint = " (put a text with a comma in it into quotes)"
            self._reader.problem(
                key,
                f"unknown key {repr_short(name)} in {self.what}{hint};"
                f" allowed: {', '.join(self._known)}",
            )


#: Parts of the messages of YAML parsers, each with a text that says what is wrong.
_WHY = (
    ("nesting depth", "nested too deeply"),  # libyaml has a limit since PyYAML 6.0.4.
    (
        "found character that cannot start any token",
        "{}, which nothing begins with; put text into quotes",
    ),
    ("alias|anchor", "a text that begins with * or &; put it into quotes"),
    (
        "mapping values are not allowed",
        "a second ': ' in a row; a text with ': ' in it goes into quotes",
    ),
    (
        "flow (sequence|mapping)|expected ',' or",
        "what a bracket begins is not closed, or lacks a comma before this",
    ),
    (
        "unexpected end of stream|document separator",
        "a text in quotes that is not closed",
    ),
    (
        "escape",
        "a backslash in double quotes with what it does not go with; in single quotes a"
        " backslash is itself",
    ),
    (
        "could not find expected ':'|simple key",
        "a row without a key: write 'key: value', or indent it below the text that it"
        " goes on with",
    ),
    (
        "another document|document (start|end)",
        "more than one document; one op, one file, without '---' or '...' in it",
    ),
    ("directive", "a row that begins with %; put it in quotes"),
    ("tag", "a tag; a text that begins with ! goes into quotes"),
    ("comment|block scalar", "what is behind | or > belongs into the next row"),
    (
        "block|indentation|expected key",
        "what does not go on from before: check how it is indented, and that text with"
        " quotes or brackets in it is in quotes",
    ),
    ("merge key", "a key <<, which merges what cannot be merged"),
)


def _why(error: yaml.MarkedYAMLError, found: str) -> str:
    """A parser's error in terms of YAML. `found` is the text at which it stopped."""
    said = str(error.problem)
    if said.startswith("the alias"):
        return said
    if found == "\t":
        return "a tab where spaces belong"
    for where in (said, str(error.context)):
        for pattern, words in _WHY:
            if re.search(pattern, where):
                return words.format(found)
    return said


def value_of(text: str) -> str | None:
    """The value in a YAML text with one key; None if the text is not YAML."""
    try:
        node: Any = yaml.compose(text, Loader=_Loader)
        return str(node.value[0][1].value)
    except yaml.YAMLError:
        return None


def repr_short(text: str) -> str:
    """`text` in quotes, on one line, and shortened if it is long."""
    return _SHORT.repr(text)


def did_you_mean(text: str, known: Iterable[str], meant: str | None = None) -> str:
    """A hint at the name that `text` may stand for: `meant`, or a similar one."""
    choices = list(known)
    near = difflib.get_close_matches(text, choices, n=1)
    if meant in choices:
        near = [str(meant)]
    return f" (did you mean {near[0]!r}?)" if near else ""


_SHORT = reprlib.Repr()
_SHORT.maxstring = 60


def _is_scalar(node: yaml.Node, *kinds: str) -> bool:
    return isinstance(node, yaml.ScalarNode) and any(_is(node, kind) for kind in kinds)


def _is(node: yaml.Node, kind: str) -> bool:
    return str(node.tag) == _TAG + kind


def _position(content: bytes, offset: int) -> tuple[int, int]:
    line = content.count(b"\n", 0, offset) + 1
    return line, offset - content.rfind(b"\n", 0, offset)
