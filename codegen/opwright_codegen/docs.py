"""Writes docstrings from the facts of an op and its documentation."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from opwright_codegen import literals, naming
from opwright_codegen.model import (
    Arg,
    Attr,
    Op,
    Role,
)
from opwright_codegen.types import dtype_text

_WIDTH = 88
_UNPRINTABLE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")


#: It stands for a space at which lines are not wrapped.
_FIXED = "\N{NO-BREAK SPACE}"
#: Longer shapes may be wrapped.
_SHORT = 60


@dataclass(frozen=True)
class _Entry:
    """An entry of a section: a name, its kind, and its documentation."""

    name: str
    kind: str | None = None
    shape: str | None = None
    doc: str | None = None
    #: The entries below it, which are indented.
    parts: tuple[_Entry, ...] = ()

    def __str__(self) -> str:
        facts = ", ".join(filter(None, (self.kind, self.shape)))
        text = ". ".join(filter(None, (facts, self.doc)))
        return f"{self.name}: {text if text.endswith('.') else text + '.'}"

    def rows(self, width: int, indent: str = "    ") -> list[str]:
        """The lines of the entry and of its parts."""
        rows = _wrap(str(self), width, indent, indent + "    ")
        for part in self.parts:
            rows += part.rows(width, indent + "    ")
        return rows


def summary(op: Op) -> str:
    """One line that says what the op is, ending with a period."""
    if op.summary is not None:
        return op.summary
    inputs = ", ".join(f"`{arg.name}`" for arg in op.inputs) or "no inputs"
    outputs = ", ".join(f"`{arg.name}`" for arg in op.outputs) or "no outputs"
    return f"TensorFlow's `{op.name}`: {inputs} -> {outputs}."


def module(op: Op) -> str:
    if op.summary is not None:
        return _docstring([f"{op.name}: {_lower_first(op.summary)}"], 0)
    return _docstring([f"{op.name}, as a class and as a function."], 0)


def group(package: str, line: str | None, ops: int, moved: int) -> str:
    """The docstring of a group's package."""
    paragraphs = [] if line is None else [line]
    if ops or not moved:
        paragraphs.append(f"{_ops(ops)}, each a class and a function.")
    if moved:
        paragraphs.append(
            f"{_ops(moved)} of other groups, imported from here as before."
        )
    first, *rest = paragraphs
    return _docstring([f"{package}: {_lower_first(first)}", *rest], 0)


def _ops(count: int) -> str:
    return f"{count} op" if count == 1 else f"{count} ops"


def op_class(op: Op) -> str:
    body = list(_paragraphs(op.description))
    body.append(" ".join(_facts(op)))
    body += [f"`{attr.name}`: {limits}." for attr, limits in _inferred(op)]
    return _docstring(
        [summary(op), *filter(None, body)],
        4,
        [("Attributes", _outputs(op))],
        op.example,
    )


def _inferred(op: Op) -> Iterator[tuple[Attr, str]]:
    """Limits of attrs: the allowed dtypes, and the least length of inferred ones."""
    for attr in op.attrs:
        inferred = op.role(attr) is Role.INFERRED
        limits: list[str] = []
        if attr.allowed is not None and (attr.kind == "type" or inferred):
            limits.append(_alternatives(attr.allowed))
        if inferred and attr.minimum:
            limits.append(_lower_first(_least(attr) or "").removesuffix("."))
        if limits:
            yield attr, ", ".join(limits)


def options_class(op: Op) -> str:
    entries = [
        _Entry(naming.argument(attr.name), kind(attr), None, _option_doc(attr))
        for attr in op.options
    ]
    return _docstring(
        [f"Optional attributes of {op.name}."], 8, [("Attributes", entries)]
    )


def inputs_class(op: Op) -> str:
    return _docstring([f"Inputs and attributes of {op.name} in a graph."], 4)


def create(op: Op) -> str:
    options = []
    if op.options:
        text = "merged field by field; the last explicit one wins."
        fields = tuple(_argument(attr, choice_doc(attr)) for attr in op.options)
        written = any(attr.doc is not None for attr in op.options)
        options = [_Entry("options", doc=text, parts=fields if written else ())]
    scope = _Entry(
        "scope", doc="graph, name, device and control dependencies of the op."
    )
    keywords = [_argument(attr, argument_doc(attr)) for attr in op.keywords]
    made = "Adds the op to `scope`, or runs it when `scope` is eager."
    return _docstring(
        [made, *_dtypes(op)] if op.summary is None else [op.summary, *_said(op), made],
        8,
        [
            ("Args", [scope, *_needed(op), *options, *keywords]),
            ("Returns", _outputs(op) if op.summary is not None else []),
            ("Raises", [_refused(op)]),
        ],
        op.example,
    )


def function(op: Op) -> str:
    cls = naming.class_name(op.name)
    options = f", with {cls}.Options as keywords" if op.options else ""
    made = f"`{cls}.create` in the current scope{options}"
    nothing = f"{made}: the operation in a graph, None eagerly."
    if op.summary is None:
        if not op.outputs:
            return _docstring([nothing], 4)
        returns = "The outputs"
        if len(op.outputs) == 1:
            (output,) = op.outputs
            returns = f"`{naming.output(output.name, only=op.is_tensor)}`"
        return _docstring([f"{returns} of {made}."], 4)
    keywords = [
        *(_argument(attr, choice_doc(attr)) for attr in op.options),
        *(_argument(attr, argument_doc(attr)) for attr in op.keywords),
    ]
    name = _Entry("name", doc="what the op is called in a graph.")
    return _docstring(
        [op.summary, *_said(op), f"{made}." if op.outputs else nothing],
        4,
        [
            ("Args", [*_needed(op), *keywords, name]),
            ("Returns", _returned(op)),
            ("Raises", [_refused(op)]),
        ],
        op.example,
    )


def raw_op(op: Op, package: str) -> str:
    """The docstring of an op in a stub of raw ops, without the example.

    `package` is the package of the op. It has a subpackage for each group.
    """
    nothing = [] if op.outputs else ["Returns the operation in a graph, None eagerly."]
    function = f"{package}.{op.group}.{naming.function_name(op.name)}"
    example = [f"`{function}` has an example."]
    said = [] if op.summary is None else [*_said(op)]
    keywords = [
        _argument(attr, argument_doc(attr) if attr.kind == "type" else choice_doc(attr))
        for attr in op.given
        if attr.default is not None
    ]
    return _docstring(
        [summary(op), *said, *nothing, *(example if op.example else [])],
        4,
        [
            ("Args", [*_needed(op), *keywords] if op.summary is not None else []),
            ("Returns", _returned(op) if op.summary is not None else []),
        ],
    )


def renamed(doc: str, names: Mapping[str, str]) -> str:
    """A docstring with renamed arguments, in its entries and in backquotes."""
    if not names:
        return doc

    def rename(found: re.Match[str]) -> str:
        return re.sub(r"\w+", lambda word: names.get(word[0], word[0]), found[0])

    return re.sub(r"(?m)^ +\w+: |`[^`]+`", rename, doc)


def _refused(op: Op) -> _Entry:
    """What the op raises. Spaces in its conditions do not wrap lines if they fit."""
    doc = "the op refuses an argument."
    if op.requires:
        doc += f" The call needs {_listed(op.requires)}."
    return _Entry("OpError", doc=doc)


def _listed(conditions: Sequence[str]) -> str:
    texts = (" ".join(text.split()) for text in conditions)
    fixed = (t.replace(" ", _FIXED) if len(t) <= _SHORT else t for t in texts)
    return ", ".join(f"`{text}`" for text in fixed)


def _said(op: Op) -> Iterator[str]:
    """The paragraphs about an op that is documented."""
    yield from _paragraphs(op.description)
    yield from filter(None, [" ".join(_facts(op))])
    yield from _dtypes(op)


def _dtypes(op: Op) -> Iterator[str]:
    """Paragraphs with the limits of attrs that are no arguments.

    Entries of inputs and outputs have the names of such attrs as their dtypes.
    """
    for attr, limits in _inferred(op):
        if op.role(attr) is Role.INFERRED:
            yield f"`{attr.name}`: {limits}."


def _needed(op: Op) -> Iterator[_Entry]:
    """Entries for required arguments: inputs, and attrs without a default."""
    for arg in op.inputs:
        yield _Entry(naming.argument(arg.name), arg_type(arg), _shape(arg), arg.doc)
    for attr in op.arguments:
        yield _argument(attr, argument_doc(attr))


def _argument(attr: Attr, doc: str | None) -> _Entry:
    return _Entry(naming.argument(attr.name), kind(attr), None, doc)


def _outputs(op: Op) -> list[_Entry]:
    """Entries for the outputs as attributes of the class."""
    return [
        _output(naming.output(arg.name, only=op.is_tensor), arg) for arg in op.outputs
    ]


def _returned(op: Op) -> list[_Entry]:
    """Entries for the outputs of the function. Several are fields of a tuple."""
    if len(op.outputs) == 1:
        return _outputs(op)
    return [_output(naming.field(arg.name), arg) for arg in op.outputs]


def _output(name: str, arg: Arg) -> _Entry:
    return _Entry(name, arg_type(arg), _shape(arg), arg.doc)


def _shape(arg: Arg) -> str | None:
    if arg.shape is None:
        return None
    text = " ".join(arg.shape.split())
    return f"`{text.replace(' ', _FIXED) if len(text) <= _SHORT else text}`"


def deprecation(op: Op) -> str | None:
    """The message of type checkers where a removed op is used."""
    if op.deprecation is None:
        return None
    text = (
        f"{op.name} was removed in GraphDef version {op.deprecation.version}."
        f" {op.deprecation.explanation}"
    ).strip()
    text = text if text.endswith(".") else text + "."
    replacement = op.deprecation.replacement
    if replacement is not None and replacement not in text:
        text += f" Use {replacement}."
    return text


_GRADIENTS: Final = {
    "registered": "registered",
    "not_differentiable": "declared not differentiable",
    "none": "none registered",
}


def _facts(op: Op) -> Iterator[str]:
    if op.since is not None:
        yield f"TensorFlow {op.since} brought it."
    if op.dropped_in is not None:
        yield f"TensorFlow {op.dropped_in} dropped it."
    if op.deprecation is not None:
        yield deprecation(op) or ""
    if op.is_stateful:
        yield "Stateful."
    if op.is_commutative:
        yield "Commutative."
    if op.is_aggregate:
        yield "An aggregation of its inputs."
    if op.allows_uninitialized_input:
        yield "Takes uninitialized variables."
    if op.is_distributed_communication:
        yield "Communicates with other devices."
    if op.gradient_of is not None:
        yield f"Gradient of `{op.gradient_of}`."
    if op.gradient is not None:
        # The search (opwright_runtime.search.documents) removes these sentences by a
        # regular expression.
        yield f"Gradient: {_GRADIENTS[op.gradient]}."
    if op.kernels:
        devices = [device for device, _ in op.kernels]
        names = " and ".join(device for device in devices if device != "GPU")
        gpu = ", and for GPU if it is built with CUDA" if "GPU" in devices else ""
        yield f"opwright brings kernels for {names}{gpu}."
    if op.tpu_only is not None:
        yield f"TPU only: {op.tpu_only}."


def arg_type(arg: Arg) -> str:
    """The dtype of an input or output: `T`, or a list of tensors."""
    if arg.type_list_attr is not None:
        return f"list of tensors of `{arg.type_list_attr}`"
    dtype = dtype_text(arg.dtype) if arg.dtype is not None else f"`{arg.type_attr}`"
    ref = "reference to " if arg.is_ref else ""
    if arg.count is not None:
        return f"list of `{arg.count}` tensors, each {ref}{dtype}"
    return f"{ref}{dtype}"


def kind(attr: Attr) -> str:
    """The kind of an attr, and its allowed values."""
    text = str(attr.kind).replace("type", "dtype")
    if attr.message is not None:
        return f"{attr.message}, the message or its bytes"
    if attr.allowed is None:
        return text
    values = (
        map(dtype_text, attr.allowed)
        if attr.kind.element == "type"
        else map(literals.quoted, attr.allowed)
    )
    return f"{text}, one of {', '.join(values)}"


def argument_doc(attr: Attr) -> str | None:
    """The documentation of an attr that is an argument."""
    default = None
    if attr.default is not None:
        default = f"Default {dtype_text(str(attr.default))}."
    return (
        " ".join(filter(None, (_least(attr), default, _since(attr), attr.doc))) or None
    )


def choice_doc(attr: Attr) -> str | None:
    """The documentation of an option, with its default."""
    default = f"Default {literals.value(attr.default)}."
    return " ".join(filter(None, (_least(attr), default, attr.doc)))


def _option_doc(attr: Attr) -> str | None:
    return " ".join(filter(None, (_least(attr), _since(attr), attr.doc))) or None


def _since(attr: Attr) -> str | None:
    brought = [(attr.since, "it")] if attr.since is not None else []
    for value, version in attr.allowed_since:
        dtype = attr.kind.element == "type"
        brought.append(
            (version, dtype_text(value) if dtype else literals.quoted(value))
        )
    said = [f"TensorFlow {when} brought {what}." for when, what in brought]
    if attr.dropped_in is not None:
        said.append(f"TensorFlow {attr.dropped_in} dropped it.")
    return " ".join(said) or None


def _least(attr: Attr) -> str | None:
    if attr.kind.is_list:
        plural = "" if attr.minimum == 1 else "s"
        return f"At least {attr.minimum} value{plural}." if attr.minimum else None
    return None if attr.minimum is None else f"At least {attr.minimum}."


def _alternatives(names: Iterable[str]) -> str:
    texts = list(dict.fromkeys(map(dtype_text, names)))
    if len(texts) == 1:
        return texts[0]
    return f"{', '.join(texts[:-1])} or {texts[-1]}"


def _paragraphs(text: str | None) -> Iterator[str]:
    if text is not None:
        yield from (part for part in text.strip("\n").split("\n\n") if part.strip())


def _lower_first(text: str) -> str:
    first = text.split(" ", 1)[0]
    if len(first) > 1 and not first[1:].islower():
        return text
    return text[:1].lower() + text[1:]


def _wrap(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Wraps prose. Lists and indented lines (formulas) are not wrapped."""
    rows = text.split("\n")
    if text.startswith(" ") or (
        len(rows) > 1 and any(row.startswith((" ", "-", "*", "|")) for row in rows)
    ):
        return [first + rows[0], *(rest + row for row in rows[1:])]
    wrapped = textwrap.wrap(
        " ".join(re.split(r"[ \n]+", text)),
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [row.replace(_FIXED, " ") for row in wrapped]


def _docstring(
    paragraphs: Sequence[str],
    indent: int,
    sections: Iterable[tuple[str, Sequence[_Entry]]] = (),
    example: str | None = None,
) -> str:
    width = _WIDTH - indent
    blocks = [_wrap(paragraphs[0], width - 6)]
    blocks += [_wrap(paragraph, width) for paragraph in paragraphs[1:]]
    for title, entries in sections:
        if entries:
            rows = (entry.rows(width) for entry in entries)
            blocks.append([f"{title}:", *itertools.chain.from_iterable(rows)])
    if example is not None:
        code = textwrap.indent(example.strip("\n"), "    ").split("\n")
        blocks.append(["Example:", *code])
    text = "\n\n".join("\n".join(block) for block in blocks)
    text = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    text = _UNPRINTABLE.sub(lambda found: literals.quoted(found[0])[1:-1], text)
    if text.endswith('"'):
        text += " "
    if "\n" in text:
        text += "\n"
    return textwrap.indent(f'"""{text}"""', " " * indent).lstrip()
