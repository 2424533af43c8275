"""Models to Python source: decides everything, then lets the templates lay it out."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jinja2

from opwright_codegen import docs, naming
from opwright_codegen.model import Arg, Attr, Op
from opwright_codegen.types import (
    ARGUMENT_TYPES,
    DTYPES,
    FAMILIES,
    FIELD_TYPES,
    RUNTIME_TYPES,
    dtype_text,
    union,
)

#: The runtime's family of errors.
_ERRORS = (
    *("OpAttrError", "OpError", "OpExecutionError", "OpInputError", "OpKernelError"),
    *("OpModeError", "OpOptionError", "OpRemovedError", "OpUnknownError"),
)

#: Written by hand: what opwright's own packages export beside ops, by group, and from
#: which module of the runtime.
_BY_HAND = {
    "tpu": {
        "opwright_runtime.embedding": (
            *("Adadelta", "CenteredRMSProp", "DynamicLearningRate", "EmbeddingConfig"),
            *("EmbeddingFeature", "EmbeddingTable", "FrequencyEstimator", "Lion"),
            *("Momentum", "ProximalAdagrad", "ProximalYogi", "RMSProp"),
            *("TPUEmbeddingConfiguration", "software_strategy"),
        )
    }
}


@dataclass(frozen=True)
class Field:
    """A name with its annotation: an output, an option, a field of `Inputs`."""

    name: str
    annotation: str
    default: str | None = None
    op_def_name: str = ""

    @property
    def parameter(self) -> str:
        text = f"{self.name}: {self.annotation}"
        return text if self.default is None else f"{text} = {self.default}"


@dataclass(frozen=True)
class Signature:
    """One signature of `create`; the function's is the same with a name for a scope."""

    positional: tuple[Field, ...]
    keywords: tuple[Field, ...]
    returns: str


@dataclass(frozen=True)
class TypeVariable:
    name: str
    bound: str


@dataclass(frozen=True)
class OpView:
    """All that the template of an op's file says, in words of Python."""

    source: str
    op_name: str
    cls: str
    function: str
    module_doc: str
    class_doc: str
    inputs_doc: str
    options_doc: str
    create_doc: str
    function_doc: str
    typing_names: tuple[str, ...]
    extension_names: tuple[str, ...]
    runtime_names: tuple[str, ...]
    uses_sequence: bool
    type_names: tuple[str, ...]
    uses_numpy: bool
    type_variables: tuple[TypeVariable, ...]
    generic: str
    read_generic: str
    read_as: str
    outputs: tuple[Field, ...]
    slots: str
    option_slots: str
    assigned: str
    single: Field | None
    inputs: tuple[Field, ...]
    options: tuple[Field, ...]
    python_names: tuple[tuple[str, str], ...]
    messages: tuple[tuple[str, str], ...]
    overloads: tuple[Signature, ...]
    signature: Signature
    sent: tuple[str, ...]
    operands: str
    kept: str
    forwarded: tuple[str, ...]
    deprecated: str | None


def op_source(op: Op) -> str:
    """The unformatted source of the file of one op."""
    return _environment().get_template("op.py.jinja").render(op=_view(op))


def group_source(
    package: str, group: str, op_names: Sequence[str], subpackages: Sequence[str]
) -> str:
    """The unformatted source of the `__init__` of a group's package."""
    entries = [
        {
            "module": naming.module_name(name),
            "cls": naming.class_name(name),
            "function": naming.function_name(name),
        }
        for name in op_names
    ]
    return (
        _environment()
        .get_template("group.py.jinja")
        .render(
            package=package,
            group=group,
            entries=entries,
            subpackages=subpackages,
            by_hand=_BY_HAND.get(group, {}) if package == "opwright" else {},
        )
    )


def root_source(package: str, groups: Sequence[str]) -> str:
    """The unformatted source of the `__init__` of the whole package.

    opwright's own also exports what users need of the runtime; the package of a
    custom-op author exports the ops alone.
    """
    return (
        _environment()
        .get_template("package.py.jinja")
        .render(
            package=package,
            groups=groups,
            is_opwright=package == "opwright",
            errors=_ERRORS,
            types=_sorted({"Operand", "Output", *DTYPES.values(), *FAMILIES}),
        )
    )


def table_source(package: str, ops: Sequence[tuple[str, str]]) -> str:
    """The unformatted table of every op of a package: (OP_NAME, group) to class."""
    rows = [
        (
            name,
            f"{package}.{group}.{naming.module_name(name)}",
            naming.class_name(name),
        )
        for name, group in sorted(ops)
    ]
    return (
        _environment().get_template("table.py.jinja").render(package=package, rows=rows)
    )


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["quoted"] = docs.quoted
    return environment


def _view(op: Op) -> OpView:
    cls = naming.class_name(op.name)
    class_attrs = _output_types(op)
    twins = naming.function_variables(op)
    outputs = tuple(
        Field(naming.output(arg.name), _output(arg, class_attrs, naming.type_variable))
        for arg in op.outputs
    )
    inputs = tuple(
        Field(
            naming.argument(arg.name),
            _output(arg, class_attrs, twins.__getitem__),
            op_def_name=arg.name,
        )
        for arg in op.inputs
    ) + tuple(
        Field(naming.argument(attr.name), _read(attr), op_def_name=attr.name)
        for attr in op.attrs
    )
    options = tuple(
        Field(
            naming.argument(attr.name),
            _given(attr),
            f"default({docs.value(attr.default)})",
            op_def_name=attr.name,
        )
        for attr in op.options
    )
    signature, overloads = _signatures(op, cls, class_attrs, twins)
    used = {arg.type_attr for arg in op.inputs}
    read = [name for name in class_attrs if name in used]
    variables = _type_variables(op, class_attrs, twins, (signature, *overloads))
    operands = [naming.argument(arg.name) for arg in op.inputs]
    view = OpView(
        source=_relative(op.source),
        op_name=op.name,
        cls=cls,
        function=naming.function_name(op.name),
        module_doc=docs.module(op),
        class_doc=docs.op_class(op),
        inputs_doc=docs.inputs_class(op),
        options_doc=docs.options_class(op),
        create_doc=docs.create(op),
        function_doc=docs.function(op),
        typing_names=(),
        extension_names=(),
        runtime_names=(),
        uses_sequence=False,
        type_names=(),
        uses_numpy=any("np." in (option.default or "") for option in options),
        type_variables=variables,
        generic=_brackets(map(naming.type_variable, class_attrs)),
        read_generic=_brackets(twins[name] for name in read),
        read_as=_brackets(map(naming.type_variable, read)),
        outputs=outputs,
        slots=_tuple([docs.quoted(output.name) for output in outputs]),
        option_slots=_tuple([docs.quoted(option.name) for option in options]),
        assigned=_assigned(outputs),
        single=(
            outputs[0] if len(outputs) == 1 and not op.outputs[0].is_list else None
        ),
        inputs=inputs,
        options=options,
        python_names=_python_names(op),
        messages=tuple((a.name, a.message) for a in op.attrs if a.message is not None),
        overloads=overloads,
        signature=signature,
        sent=(*operands, *_sent(op)),
        operands=_tuple(operands),
        kept=_kept(op),
        forwarded=_forwarded(op),
        deprecated=docs.deprecation(op),
    )
    return _with_imports(view, _default_dtypes(op))


def _relative(source: str) -> str:
    """`opdefs/nn/MatMul.yaml`, wherever the checkout lies."""
    return "/".join(Path(source).parts[-3:])


def _output_types(op: Op) -> tuple[str, ...]:
    """Type attrs that an output has: the type parameters of the op's class."""
    names = (arg.type_attr for arg in op.outputs)
    return tuple(dict.fromkeys(name for name in names if name is not None))


def _brackets(names: Iterable[str]) -> str:
    text = ", ".join(names)
    return f"[{text}]" if text else ""


def _output(
    arg: Arg, class_attrs: tuple[str, ...], variable: Callable[[str], str]
) -> str:
    if arg.type_list_attr is not None:
        return "list[Output[AnyDType]]"
    if arg.dtype is not None:
        inner = DTYPES[arg.dtype]
    elif arg.type_attr in class_attrs:
        inner = variable(arg.type_attr or "")
    else:
        inner = "AnyDType"
    return f"list[Output[{inner}]]" if arg.count is not None else f"Output[{inner}]"


def _operand(arg: Arg, twins: Mapping[str, str]) -> str:
    if arg.type_list_attr is not None:
        return "Sequence[Operand[AnyDType]]"
    inner = DTYPES[arg.dtype] if arg.dtype else twins[arg.type_attr or ""]
    no_values = arg.is_ref or arg.dtype in ("resource", "variant")
    text = f"{'TensorOperand' if no_values else 'Operand'}[{inner}]"
    return f"Sequence[{text}]" if arg.count is not None else text


def _given(attr: Attr) -> str:
    """An attr where a caller gives it."""
    if attr.message is not None:
        return "MessageLike"
    if attr.kind.element == "string" and attr.allowed:
        element = f"Literal[{', '.join(map(docs.quoted, attr.allowed))}]"
    else:
        element = ARGUMENT_TYPES[attr.kind.element]
    return f"Sequence[{element}]" if attr.kind.is_list else element


def _read(attr: Attr) -> str:
    """An attr where a caller reads it off an operation."""
    if attr.message is not None:
        return "MessageBytes"
    if attr.kind.element == "string" and attr.allowed:
        element = f"Literal[{', '.join(map(docs.quoted, attr.allowed))}]"
    else:
        element = FIELD_TYPES[attr.kind.element]
    return f"tuple[{element}, ...]" if attr.kind.is_list else element


def _signatures(
    op: Op, cls: str, class_attrs: tuple[str, ...], twins: Mapping[str, str]
) -> tuple[Signature, tuple[Signature, ...]]:
    """The signature of `create`, and its overloads where a dtype has a default.

    A dtype given as a class is followed to the outputs, as is the default's; given as
    a `tf.DType` or by name it is not: nothing settles its type variable then, which
    falls back to its own default, `AnyDType`.
    """
    followed = [
        attr for attr in op.required if attr.kind == "type" and attr.name in class_attrs
    ]
    optional = [attr for attr in followed if attr.default is not None]

    def build(left_out: Collection[str], implementation: bool) -> Signature:
        """`left_out`: the optional dtypes that stand at their defaults."""
        positional = [
            Field(naming.argument(arg.name), _operand(arg, twins)) for arg in op.inputs
        ]
        keywords = []
        for attr in op.required:
            name = naming.argument(attr.name)
            if attr not in followed:
                annotation = _argument(attr)
            elif attr.name in left_out:
                annotation = f"type[{DTYPES[str(attr.default)]}]"
            else:
                annotation = f"type[{twins[attr.name]}] | DTypeLike"
            if attr.default is None:
                positional.append(Field(name, annotation))
                continue
            if attr.name in left_out and len(left_out) < len(optional):
                # Where another dtype is given, being there at all would make this
                # signature overlap with the one where both are.
                continue
            default: str | None = DTYPES[str(attr.default)]
            if attr in followed and attr.name not in left_out:
                # A class is no default for a type variable, a name is.
                default = (
                    docs.quoted(dtype_text(str(attr.default)))
                    if implementation
                    else None
                )
            keywords.append(Field(name, annotation, default))
        parameters = [
            (DTYPES[str(op.attr(name).default)] if name in left_out else twins[name])
            for name in class_attrs
        ]
        returns = f"{cls}{_brackets(parameters)}"
        return Signature(tuple(positional), tuple(keywords), returns)

    if not optional:
        return build((), True), ()
    names = [attr.name for attr in optional]
    overloads = tuple(
        build(left_out, False)
        for count in range(len(names), -1, -1)
        for left_out in itertools.combinations(names, count)
    )
    return build((), True), overloads


def _argument(attr: Attr) -> str:
    """A required attr; a dtype only as one of those allowed."""
    if attr.kind == "type" and attr.allowed is not None:
        return f"type[{union(attr.allowed)}] | DTypeLike"
    return _given(attr)


def _type_variables(
    op: Op,
    class_attrs: tuple[str, ...],
    twins: Mapping[str, str],
    signatures: Sequence[Signature],
) -> tuple[TypeVariable, ...]:
    variables = []
    used = " ".join(
        field.annotation
        for signature in signatures
        for field in (*signature.positional, *signature.keywords)
    ) + " ".join(signature.returns for signature in signatures)
    for attr in op.attrs:
        if attr.kind != "type":
            continue
        bound = union(attr.allowed)
        if attr.name in class_attrs:
            variables.append(TypeVariable(naming.type_variable(attr.name), bound))
        if re.search(rf"\b{twins[attr.name]}\b", used):
            variables.append(TypeVariable(twins[attr.name], bound))
    return tuple(variables)


def _default_dtypes(op: Op) -> frozenset[str]:
    return frozenset(
        DTYPES[str(attr.default)] for attr in op.required if attr.default is not None
    )


def _assigned(outputs: tuple[Field, ...]) -> str:
    """What the result of an execution is assigned to; nothing without outputs."""
    targets = [f"op.{output.name}" for output in outputs]
    if not targets:
        return ""
    return f"{targets[0]} = " if len(targets) == 1 else f"({', '.join(targets)}) = "


def _tuple(items: Sequence[str]) -> str:
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def _sent(op: Op) -> Iterator[str]:
    """Names and values of attrs, as TensorFlow's fast path and its tape take them."""
    for attr in op.attrs:
        if attr.name in op.inferred:
            continue
        yield docs.quoted(attr.name)
        if op.is_option(attr):
            yield f"opts.{naming.argument(attr.name)}"
        elif attr.kind == "type":
            yield f"as_dtype({naming.argument(attr.name)})"
        elif attr.kind == "list(type)":
            yield f"as_dtypes({naming.argument(attr.name)})"
        elif attr.message is not None:
            yield f"as_bytes({naming.argument(attr.name)}, {docs.quoted(attr.message)})"
        else:
            yield naming.argument(attr.name)


def _kept(op: Op) -> str:
    """A dict of the attrs, for where the fast path does not serve."""
    items = ", ".join(
        (
            f"{docs.quoted(attr.name)}: opts.{naming.argument(attr.name)}"
            if op.is_option(attr)
            else f"{docs.quoted(attr.name)}: {naming.argument(attr.name)}"
        )
        for attr in op.attrs
        if attr.name not in op.inferred
    )
    return f"{{{items}}}"


def _forwarded(op: Op) -> tuple[str, ...]:
    """How the function passes its arguments to `create`."""
    arguments: list[str] = ["Scope.current(name)"]
    arguments += [naming.argument(arg.name) for arg in op.inputs]
    arguments += [
        naming.argument(attr.name) for attr in op.required if attr.default is None
    ]
    if op.options:
        fields = [
            f"{naming.argument(attr.name)}={naming.argument(attr.name)}"
            for attr in op.options
        ]
        arguments.append(f"{naming.class_name(op.name)}.Options({', '.join(fields)})")
    for attr in op.required:
        if attr.default is not None:
            name = naming.argument(attr.name)
            arguments.append(f"{name}={name}")
    return tuple(arguments)


def _python_names(op: Op) -> tuple[tuple[str, str], ...]:
    """OpDef name -> Python name, where they differ."""
    pairs = {
        name: spelled
        for name, spelled in (
            *((arg.name, naming.argument(arg.name)) for arg in op.inputs),
            *((attr.name, naming.argument(attr.name)) for attr in op.attrs),
            *((arg.name, naming.output(arg.name)) for arg in op.outputs),
        )
        if name != spelled
    }
    return tuple(pairs.items())


def _with_imports(view: OpView, defaults: frozenset[str]) -> OpView:
    """`view` with the imports that its text needs, so that none is unused."""
    signatures = (view.signature, *view.overloads)
    parameters = itertools.chain.from_iterable(
        (*signature.positional, *signature.keywords) for signature in signatures
    )
    fields = (*view.outputs, *view.inputs, *view.options, *parameters)
    texts = [
        *(field.annotation for field in fields),
        *(signature.returns for signature in signatures),
        *(f"{variable.bound} AnyDType" for variable in view.type_variables),
    ]
    words = set(re.findall(r"\w+", re.sub(r'"(?:[^"\\]|\\.)*"', "", " ".join(texts))))
    type_names = (words & RUNTIME_TYPES) - defaults
    typing_names = {
        "TYPE_CHECKING": bool(type_names or view.options or "Sequence" in words),
        "Generic": bool(view.generic),
        "Literal": "Literal" in words,
        "overload": bool(view.overloads),
    }
    sent = " ".join(view.sent)
    converters = {
        name for name in ("as_bytes", "as_dtype", "as_dtypes") if f"{name}(" in sent
    }
    return dataclasses.replace(
        view,
        typing_names=_sorted(n for n, used in typing_names.items() if used),
        extension_names=_sorted(
            name
            for name, used in {
                "TypeVar": bool(view.type_variables),
                "deprecated": bool(view.deprecated),
            }.items()
            if used
        ),
        runtime_names=_sorted(defaults | converters),
        type_names=_sorted(type_names),
        uses_sequence="Sequence" in words,
    )


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    """Names in the order that import sorters want: constants, classes, functions."""

    def key(name: str) -> tuple[int, list[str | int]]:
        kind = 0 if name.isupper() else 1 if name[0].isupper() else 2
        parts = re.split(r"(\d+)", name)
        return kind, [int(part) if part.isdigit() else part for part in parts]

    return tuple(sorted(names, key=key))
