"""The content of an op's file, as Python objects for its template."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from opwright_codegen import (
    annotate,
    call,
    docs,
    literals,
    naming,
    requirements,
    shapes,
)
from opwright_codegen.model import Arg, Attr, Op, TensorValue
from opwright_codegen.problems import one_line
from opwright_codegen.signature import Field, Signature, signatures
from opwright_codegen.types import (
    ANY_DTYPE,
    BINDING,
    RUNTIME,
    PyType,
    dtype_text,
    named,
    one_of_dtypes,
)


@dataclass(frozen=True)
class TypeVariable:
    name: str
    bound: PyType
    default: PyType = ANY_DTYPE


@dataclass(frozen=True)
class OpView:
    """All data for the template of an op's file."""

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
    type_variables: tuple[TypeVariable, ...]
    #: The base classes of the class: `TensorOp[...]`, or `Op` and `Generic[...]`.
    base: PyType
    generic: PyType | None
    #: `Generic[...]` for the class of its inputs, and for the tuple of its outputs.
    inputs_generic: PyType | None
    tuple_generic: PyType | None
    #: The class of the inputs, with the type variables of the op's class.
    inputs_type: PyType
    outputs: tuple[Field, ...]
    #: With several outputs: the named tuple that the function returns, and its fields.
    outputs_cls: str | None
    fields: tuple[Field, ...]
    slots: str
    option_slots: str
    assigned: str
    inputs: tuple[Field, ...]
    options: tuple[Field, ...]
    #: The options as parameters of the function.
    choices: tuple[Field, ...]
    python_names: tuple[tuple[str, str], ...]
    shapes: tuple[tuple[str, str], ...]
    messages: tuple[tuple[str, str], ...]
    #: Inputs and attrs that kernels truncate, and the dtypes to which they do.
    truncated: tuple[tuple[str, str], ...]
    #: The conditions of calls, and the function for them: its parameters and result.
    requires: tuple[str, ...]
    holds_parameters: tuple[str, ...]
    holds_condition: str
    #: The op, attrs and values that the oldest supported TensorFlow lacks, with the
    #: version that added each.
    since: tuple[tuple[str, str], ...]
    #: The op and attrs that a newer TensorFlow dropped, with the first version without.
    dropped_in: tuple[tuple[str, str], ...]
    #: The parts of the op on which calls depend, if the class has `SCHEMA`.
    schema: tuple[tuple[str, str], ...]
    overloads: tuple[Signature, ...]
    signature: Signature
    #: The runtime's functions that calls use to convert attrs.
    converters: frozenset[str]
    #: The arguments that `create` passes to the fast path, and to `_build` if that
    #: fails.
    fast_path_args: tuple[str, ...]
    fallback_attrs: str
    #: The condition on the arguments for using the fast path. It begins with `and`.
    fast_path_condition: str
    #: The same three values for the op's function.
    function_fast_path_condition: str
    function_fast_path_args: tuple[str, ...]
    function_fallback_attrs: str
    operands: str
    native: str | None
    deprecated: str | None
    uses_numpy: bool

    def _types(self) -> Iterator[PyType]:
        """All type expressions of the file, with their parts."""
        whole = itertools.chain(
            (field.annotation for field in self.outputs + self.inputs + self.options),
            (variable.bound for variable in self.type_variables),
            (variable.default for variable in self.type_variables),
            (self.base,),
            filter(None, (self.generic, self.inputs_generic, self.tuple_generic)),
        )
        for one in whole:
            yield from one.walk()
        for signature in (self.signature, *self.overloads):
            yield from signature.types()

    @cached_property
    def _imported(self) -> Mapping[str | None, frozenset[str]]:
        """The names in the file's types, by the module that has them."""
        found = defaultdict(set)
        for one in self._types():
            found[one.module].add(one.name)
        return {module: frozenset(names) for module, names in found.items()}

    def _types_of(self, module: str) -> frozenset[str]:
        return self._imported.get(module, frozenset())

    def _defaults(self) -> frozenset[str]:
        """The dtypes that are defaults of parameters."""
        return frozenset(
            field.default.name
            for signature in (self.signature, *self.overloads)
            for field in signature.keywords
            if isinstance(field.default, PyType)
        )

    # These properties are the imports of the file: all names that it uses, and no
    # others.

    @cached_property
    def runtime_names(self) -> tuple[str, ...]:
        """The names of the runtime that are used at run time."""
        return naming.import_order(self._used | BINDING)

    @cached_property
    def type_names(self) -> tuple[str, ...]:
        """The names of the runtime that only type checkers use."""
        return naming.import_order(self._types_of(RUNTIME) - self._used)

    @cached_property
    def _used(self) -> frozenset[str]:
        names = self._defaults() | self.converters | {self.base.name}
        names |= {"OpOptions", "default", "merging"} if self.options else set()
        # The arguments of generic base classes are evaluated at run time.
        return names | {arg.name for arg in self.base.args if arg.module == RUNTIME}

    @cached_property
    def uses_sequence(self) -> bool:
        return bool(self._types_of("collections.abc"))

    @cached_property
    def typing_names(self) -> tuple[str, ...]:
        names = set(self._types_of("typing"))
        if self.type_names or self.options or self.uses_sequence:
            names.add("TYPE_CHECKING")
        if self.overloads:
            names.add("overload")
        return naming.import_order(names)

    @cached_property
    def extension_names(self) -> tuple[str, ...]:
        """The names of typing_extensions."""
        names = {
            "NamedTuple": self.outputs_cls,
            "Never": True,
            "TypeVar": self.type_variables,
            "deprecated": self.deprecated,
        }
        return naming.import_order(name for name, used in names.items() if used)


def op_view(op: Op, states_schema: bool = False) -> OpView:
    """The view of an op's file. `states_schema`: whether its class has `SCHEMA`."""
    cls = naming.class_name(op.name)
    variables = annotate.class_variables(op)
    function_variables = annotate.function_variables(op)
    used = {arg.type_attr for arg in op.inputs}
    input_variables = {
        name: function_variables[name] for name in variables if name in used
    }
    outputs = _outputs(op, variables)
    options = _options(op)
    signature, overloads = signatures(op, variables, function_variables)
    several = len(outputs) > 1
    required = requirements.in_python(op)
    return OpView(
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
        type_variables=tuple(
            _type_variables(op, variables, function_variables, (signature, *overloads))
        ),
        base=(
            named("TensorOp", *outputs[0].annotation.args)
            if op.is_tensor
            else PyType("Op")
        ),
        generic=None if op.is_tensor else _generic(variables.values()),
        inputs_generic=_generic(input_variables.values()),
        tuple_generic=_generic(variables.values()) if several else None,
        inputs_type=PyType(
            f"{cls}Inputs", tuple(variables[name] for name in input_variables)
        ),
        outputs=outputs,
        outputs_cls=naming.outputs_class(op.name) if several else None,
        fields=tuple(
            Field(naming.field(arg.name), output.annotation)
            for arg, output in zip(op.outputs, outputs, strict=True)
        ),
        slots=call.tuple_of([literals.quoted(output.name) for output in outputs]),
        option_slots=call.tuple_of(
            [literals.quoted(option.name) for option in options]
        ),
        assigned=call.assigned([output.name for output in outputs]),
        inputs=_inputs(op, input_variables),
        options=options,
        choices=_choices(op, options),
        python_names=_python_names(op),
        shapes=_shapes(op),
        messages=tuple((a.name, a.message) for a in op.attrs if a.message is not None),
        truncated=op.truncated,
        requires=tuple(" ".join(text.split()) for text in op.requires),
        holds_parameters=tuple(map(_parameter, required.parameters)),
        holds_condition=required.condition,
        since=tuple(_since(op)),
        dropped_in=tuple(_dropped_in(op)),
        schema=tuple(_schema(op)) if states_schema else (),
        overloads=overloads,
        signature=signature,
        converters=frozenset(
            (*call.converters(op), *call.narrowing(op), *required.helpers)
        ),
        **_calls(op, required),
        operands=call.tuple_of(call.operands(op)),
        native=_native(op),
        deprecated=docs.deprecation(op),
        uses_numpy=any(map(_is_array, op.options)),
    )


def _calls(op: Op, required: requirements.Requirements) -> dict[str, Any]:
    """How `create` and the function call the runtime."""
    found: dict[str, Any] = {}
    for prefix, by_function in (("", False), ("function_", True)):
        found[f"{prefix}fast_path_args"] = (
            *call.operands(op),
            *call.fast_path_attrs(op, by_function=by_function),
        )
        found[f"{prefix}fallback_attrs"] = call.fallback_attrs(
            op, by_function=by_function
        )
        found[f"{prefix}fast_path_condition"] = call.fast_path_condition(
            op, required, by_function=by_function
        )
    return found


def _choices(op: Op, options: Sequence[Field]) -> tuple[Field, ...]:
    return tuple(
        Field(option.name, option.annotation, literals.value(attr.default))
        for option, attr in zip(options, op.options, strict=True)
    )


def _outputs(op: Op, variables: annotate.Variables) -> tuple[Field, ...]:
    return tuple(
        Field(
            naming.output(arg.name, only=op.is_tensor), annotate.output(arg, variables)
        )
        for arg in op.outputs
    )


def _inputs(op: Op, variables: annotate.Variables) -> tuple[Field, ...]:
    """The inputs and attrs, with the types that a class has for them as properties."""
    inputs = [
        Field(naming.argument(arg.name), annotate.output(arg, variables))
        for arg in op.inputs
    ]
    attrs = [
        Field(naming.argument(attr.name), annotate.read(attr)) for attr in op.attrs
    ]
    return (*inputs, *attrs)


def _options(op: Op) -> tuple[Field, ...]:
    return tuple(
        Field(
            naming.argument(attr.name),
            annotate.given(attr),
            f"default({literals.value(attr.default)})",
        )
        for attr in op.options
    )


#: The types of attrs as parameters of `_holds`; others are of type object.
_PARAMETERS: Final = {
    "int": "int",
    "float": "float",
    "bool": "bool",
    "list(int)": "Sequence[int]",
    "list(float)": "Sequence[float]",
}


def _parameter(one: Arg | Attr) -> str:
    """A parameter of `_holds`."""
    kind = "object"
    if isinstance(one, Attr):
        kind = "Sequence[object]" if one.kind.is_list else "object"
        kind = _PARAMETERS.get(str(one.kind), kind)
    return f"{requirements.parameter(one.name)}: {kind}"


def _relative(source: str) -> str:
    """The last three parts of a path: `opdefs/nn/MatMul.yaml`.

    Generated files must not depend on the folder of the checkout.
    """
    return one_line("/".join(Path(source).parts[-3:]))


def _generic(variables: Iterable[PyType]) -> PyType | None:
    parameters = tuple(variables)
    return named("Generic", *parameters) if parameters else None


def _type_variables(
    op: Op,
    variables: annotate.Variables,
    function_variables: annotate.Variables,
    signatures: Iterable[Signature],
) -> Iterator[TypeVariable]:
    """The type variables of the class, and those of functions that a signature uses."""
    used = {one for signature in signatures for one in signature.types()}
    for attr in op.attrs:
        if attr.kind == "type":
            bound = one_of_dtypes(attr.allowed)
            if attr.name in variables:
                yield TypeVariable(variables[attr.name].name, bound)
            if function_variables[attr.name] in used:
                yield TypeVariable(function_variables[attr.name].name, bound)


def _python_names(op: Op) -> tuple[tuple[str, str], ...]:
    """The names in the OpDef with their Python names, if these differ."""
    pairs = {
        name: spelled
        for name, spelled in (
            *((arg.name, naming.argument(arg.name)) for arg in op.inputs),
            *((attr.name, naming.argument(attr.name)) for attr in op.attrs),
            *(
                (arg.name, naming.output(arg.name, only=op.is_tensor))
                for arg in op.outputs
            ),
        )
        if name != spelled
    }
    return tuple(pairs.items())


def _since(op: Op) -> Iterator[tuple[str, str]]:
    """The versions that added the op, its attrs, and values (as `attr=value`)."""
    if op.since is not None:
        yield op.name, op.since
    for attr in op.attrs:
        if attr.since is not None:
            yield attr.name, attr.since
        for value, version in attr.allowed_since:
            text = dtype_text(value) if attr.kind.element == "type" else value
            yield f"{attr.name}={text}", version


def _dropped_in(op: Op) -> Iterator[tuple[str, str]]:
    """The first versions without the op, and without its options."""
    parts: tuple[Op | Attr, ...] = (op, *op.attrs)
    for part in parts:
        if part.dropped_in is not None:
            yield part.name, part.dropped_in


def _schema(op: Op) -> Iterator[tuple[str, str]]:
    """The schema, in the form of `schema` in the runtime's module `compatibility`."""
    for kind, args in (("input", op.inputs), ("output", op.outputs)):
        for arg in args:
            text = dtype_text(arg.dtype) if arg.dtype else str(arg.type_attr)
            text = f"{arg.count} * {text}" if arg.count else text
            text = f"ref({text})" if arg.is_ref else text
            if arg.type_list_attr:
                text = f"list of {arg.type_list_attr}"
            yield f"{kind} {arg.name}", text
    for attr in op.attrs:
        yield f"attr {attr.name}", attr.kind


def _shapes(op: Op) -> tuple[tuple[str, str], ...]:
    """The shapes of arguments, as expressions for the runtime."""
    found, _ = shapes.read(op)
    return (*found.inputs.items(), *found.outputs.items())


def _native(op: Op) -> str | None:
    """The devices for which opwright itself has kernels."""
    devices = [
        literals.quoted(device) for device, whose in op.kernels if whose == "opwright"
    ]
    return call.tuple_of(devices) if devices else None


def _is_array(option: Attr) -> bool:
    """Whether the literal of an option's default uses NumPy."""
    default = option.default
    values = default if isinstance(default, tuple) else (default,)
    return any(isinstance(value, TensorValue) for value in values)
