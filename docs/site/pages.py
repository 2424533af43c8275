"""What a page says: everything decided, for templates to lay out."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import markup
from facts import Facts
from markupsafe import Markup

from opwright_codegen import docs, naming
from opwright_codegen.model import Arg, Attr, Op
from opwright_codegen.types import dtype_text

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / "generated" / "opwright"
SOURCE = "https://github.com/opwright/opwright/blob/main/"


@dataclass(frozen=True)
class Row:
    """An op in a list."""

    name: str
    href: str
    summary: str


@dataclass(frozen=True)
class Group:
    """Ops by topic."""

    name: str
    line: str
    rows: Sequence[Row]

    @property
    def path(self) -> str:
        return f"groups/{self.name}.html"


@dataclass(frozen=True)
class Argument:
    """An input, output, attr or option in a table."""

    name: str
    kind: Markup
    shape: str
    doc: Markup


@dataclass(frozen=True)
class OpPage:
    """The page of an op."""

    name: str
    group: str
    cls: str
    function: str
    summary: str
    badges: tuple[str, ...]
    description: Markup
    signature: Markup
    create: Markup
    dtypes: tuple[tuple[str, str], ...]
    inputs: tuple[Argument, ...]
    arguments: tuple[Argument, ...]
    options: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    example: Markup | None
    errors: tuple[tuple[str, str], ...]
    facts: Facts
    source: str

    @property
    def path(self) -> str:
        return href(self.name)

    @property
    def tables(self) -> tuple[tuple[str, tuple[Argument, ...]], ...]:
        every = (
            ("Inputs", self.inputs),
            ("Arguments", self.arguments),
            ("Options", self.options),
            ("Outputs", self.outputs),
        )
        return tuple((title, rows) for title, rows in every if rows)


def href(name: str) -> str:
    return f"ops/{name.replace('>', '.')}.html"


def row(name: str, summary: str) -> Row:
    return Row(name, href(name), summary)


def op_page(op: Op, known: Collection[str], facts: Facts) -> OpPage:
    def text(words: str | None) -> Markup:
        return markup.inline(words or "", known, op.name)

    def argument(arg: Arg, name: str) -> Argument:
        return Argument(name, text(docs.arg_type(arg)), arg.shape or "", text(arg.doc))

    def attribute(attr: Attr, doc: str | None) -> Argument:
        return Argument(
            naming.argument(attr.name), text(docs.kind(attr)), "", text(doc)
        )

    source = (GENERATED / _module(op)).read_text("utf-8")
    return OpPage(
        name=op.name,
        group=op.group,
        cls=naming.class_name(op.name),
        function=naming.function_name(op.name),
        summary=op.summary or "",
        badges=tuple(_badges(op)),
        description=markup.prose(op.description or "", known, op.name),
        signature=markup.code(_signature(source, naming.function_name(op.name))),
        create=markup.code(_signature(source, "create")),
        dtypes=tuple(_dtypes(op)),
        inputs=tuple(argument(arg, naming.argument(arg.name)) for arg in op.inputs),
        arguments=tuple(
            attribute(attr, docs.argument_doc(attr))
            for attr in (*op.arguments, *op.keywords)
        ),
        options=tuple(attribute(attr, docs.choice_doc(attr)) for attr in op.options),
        outputs=tuple(
            argument(arg, naming.output(arg.name, only=op.is_tensor))
            for arg in op.outputs
        ),
        example=None if op.example is None else markup.code(op.example, "pycon"),
        errors=tuple(_errors(op)),
        facts=facts,
        source=f"{SOURCE}{Path(op.source).relative_to(ROOT).as_posix()}",
    )


def _module(op: Op) -> str:
    return f"{op.group.replace('.', '/')}/{naming.module_name(op.name)}.py"


def _signature(source: str, function: str) -> str:
    """The last definition of a function, without overloads and body."""
    found = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name == function
    ]
    node = max(found, key=lambda node: node.lineno)
    rows = source.split("\n")[node.lineno - 1 : node.body[0].lineno - 1]
    kept = (row[node.col_offset :] for row in rows if "_unknown: Never" not in row)
    return "\n".join(kept).rstrip(":")


def _badges(op: Op) -> Iterator[str]:
    if op.deprecation is not None:
        yield f"removed in GraphDef {op.deprecation.version}"
    if op.since is not None:
        yield f"since TensorFlow {op.since}"
    if op.is_stateful:
        yield "stateful"
    if op.tpu_only is not None:
        yield "TPU only"
    if any(arg.is_ref for arg in op.args()):
        yield "graphs only"
    if op.kernels:
        yield "kernels of opwright"


def _dtypes(op: Op) -> Iterator[tuple[str, str]]:
    for attr in op.attrs:
        if attr.kind == "type" and attr.allowed is not None:
            names = dict.fromkeys(map(dtype_text, attr.allowed))
            yield attr.name, ", ".join(names)


def _errors(op: Op) -> Iterator[tuple[str, str]]:
    """What the class raises, and when."""
    shaped = any(arg.shape and arg.shape != "scalar" for arg in op.inputs)
    if op.deprecation is not None:
        yield "OpRemovedError", "outside of graphs that are older than its removal"
    if any(arg.is_ref for arg in op.args()):
        yield "OpModeError", "called eagerly: it has refs, which exist in graphs only"
    if op.inputs:
        sizes = "; shapes do not go together, with sizes and axis" if shaped else ""
        yield "OpInputError", f"an input is no tensor, or of another dtype{sizes}"
    if op.arguments or op.keywords:
        yield "OpAttrError", "an argument is of another kind, or out of its range"
    if op.options:
        yield "OpOptionError", "an option is of another kind, or none of those allowed"
    yield "OpKernelError", "no kernel here serves the device and the dtypes"
    yield "OpExecutionError", "anything else that the kernel refuses, in its words"
