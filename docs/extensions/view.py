"""What a page says: everything decided, as MyST, for templates to lay out."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import markup
import signatures
from facts import Facts
from repository_links import SOURCE

from opwright_codegen import docs, naming
from opwright_codegen.model import Arg, Attr, Op
from opwright_codegen.types import dtype_text

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / "generated" / "opwright"


@dataclass(frozen=True)
class Row:
    """An op in a list."""

    name: str
    group: str
    summary: str

    @property
    def page(self) -> str:
        return f"ops/{self.name.replace('>', '.')}"

    @property
    def file(self) -> str:
        return f"{self.page}.md"


@dataclass(frozen=True)
class Argument:
    """An input, output, attr or option in a table."""

    name: str
    kind: str
    shape: str
    doc: str


@dataclass(frozen=True)
class OpPage:
    """The page of an op."""

    name: str
    group: str
    cls: str
    function: str
    summary: str
    badges: tuple[str, ...]
    description: str
    #: Of the function, `create` and `Options`; None where there are no options.
    signature: str
    create: str
    constructor: str | None
    dtypes: tuple[tuple[str, str], ...]
    inputs: tuple[Argument, ...]
    arguments: tuple[Argument, ...]
    options: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    example: str | None
    errors: tuple[tuple[str, str], ...]
    facts: Facts
    source: str

    @property
    def index(self) -> tuple[str, ...]:
        """What the index and the search have the op under, besides its names."""
        return tuple(dict.fromkeys((*self.facts.tf_names, *self.facts.synonyms)))

    @property
    def tables(self) -> tuple[tuple[str, tuple[Argument, ...]], ...]:
        every = (
            ("Inputs", self.inputs),
            ("Arguments", self.arguments),
            ("Options", self.options),
            ("Outputs", self.outputs),
        )
        return tuple((title, rows) for title, rows in every if rows)


def row(op: Op) -> Row:
    return Row(op.name, op.group, markup.escape(op.summary or ""))


def op_page(op: Op, groups: Mapping[str, str], facts: Facts) -> OpPage:
    """`groups`: the group of each op."""

    def text(words: str | None) -> str:
        return markup.cell(markup.inline(words or "", groups, op.name))

    def argument(arg: Arg, name: str) -> Argument:
        shape = markup.cell(markup.code(arg.shape or ""))
        return Argument(name, text(docs.arg_type(arg)), shape, text(arg.doc))

    def attribute(attr: Attr, doc: str | None) -> Argument:
        return Argument(
            naming.argument(attr.name), text(docs.kind(attr)), "", text(doc)
        )

    cls, function = naming.class_name(op.name), naming.function_name(op.name)
    module = ast.parse((GENERATED / _module(op)).read_text("utf-8"))
    return OpPage(
        name=op.name,
        group=op.group,
        cls=cls,
        function=function,
        summary=markup.inline(op.summary or "", groups, op.name),
        badges=tuple(_badges(op)),
        description=markup.prose(op.description or "", groups, op.name),
        signature=signatures.function(module, function),
        create=signatures.method(module, cls, "create"),
        constructor=(
            signatures.method(module, cls, "Options", "__init__")
            if op.options
            else None
        ),
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
        example=op.example,
        errors=tuple(_errors(op)),
        facts=facts,
        source=f"{SOURCE}{Path(op.source).relative_to(ROOT).as_posix()}",
    )


def _module(op: Op) -> str:
    return f"{op.group.replace('.', '/')}/{naming.module_name(op.name)}.py"


def _badges(op: Op) -> Iterator[str]:
    if op.deprecation is not None:
        yield f"removed in GraphDef {op.deprecation.version}"
    if op.since is not None:
        yield f"since TensorFlow {op.since}"
    if op.dropped_in is not None:
        yield f"dropped in TensorFlow {op.dropped_in}"
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
    if any("memory(" in condition for condition in op.requires):
        yield "OpMemoryError", "the result would take more memory than is free"
    yield "OpExecutionError", "anything else that the kernel refuses, in its words"
