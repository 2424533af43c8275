"""Lowers a function or a SavedModel to the HLO module that a TPU's compiler needs."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import tensorflow as tf

from opwright_runtime._internals import compiler_ir, function_types
from opwright_runtime._tpu_dtypes import missing_on_tpus
from opwright_runtime.tpu_check import captures, inputs
from opwright_runtime.tpu_check.findings import (
    Argument,
    Blocker,
    MissingInputError,
    TpuCheckError,
    example_sizes,
)
from opwright_runtime.tpu_check.inputs import Example, Function
from opwright_runtime.tpu_check.op_kernels import (
    FOREIGN,
    arguments_of_dtypes,
    input_names,
    no_kernel,
    no_tpu_kernel,
    supported_dtypes,
)
from opwright_runtime.tpu_check.remedies import remedy_for, row_for

# A tf.Operation.
_Op: TypeAlias = Any

# XLA limits the sizes of their results by sizes of inputs. Values decide the sizes.
_SIZED_BY_VALUES = frozenset(
    {"DynamicPartition", "Unique", "UniqueV2", "Where", "XlaSetDynamicDimensionSize"}
)

# Ops that call one function.
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")

# XLA's sentence about an input that values decide.
_CONSTANT = re.compile(r"Input (\d+) to .* must be a compile-time constant")

# The forms in which messages of TensorFlow's compiler name a node.
_NODE = re.compile(r"\{\{node ([^}]+)\}\}|node `([^`]+)`")

# Code of these packages is not the user's code.
_LIBRARIES = ("tensorflow", "keras", "tf_keras", "opwright", "opwright_runtime")


@dataclass(frozen=True)
class Traced:
    """A function traced for arguments of fixed shapes.

    Attributes:
        name: the name of the function or signature.
        function: TensorFlow's ConcreteFunction.
        specs: shape and dtype of each argument that the caller passes, in a flat list.
        arguments: these arguments and the captures, in the order of the program.
        has_sources: whether the graph has the line of code that created each op.
        signature: the name of the SavedModel's signature, if it is one.
        training: the argument `training` in the call of a Keras model.
    """

    name: str
    function: Function
    specs: tuple[tf.TensorSpec, ...]
    arguments: tuple[Argument, ...]
    has_sources: bool
    signature: str | None = None
    training: bool | None = None


def from_function(
    function: Function, args: tuple[Example, ...], kwargs: Mapping[str, Example]
) -> Traced:
    """Traces a function for example arguments."""
    name = name_of(function)
    args = args or (() if kwargs else inputs.of_input_signature(function))
    mode, kwargs = inputs.call_mode(function, args, kwargs)
    inputs.check_call(name, function, args, kwargs)
    inputs.check_dense(name, function, args, kwargs)
    inputs.check_examples(name, args, kwargs)
    names = captures.named_in_function(function)
    function = partial(function, **mode) if mode else function
    if not hasattr(function, "get_concrete_function"):
        function = tf.function(function)
    try:
        concrete = function.get_concrete_function(*args, **kwargs)
        # The trace may be more general, because of an input_signature or an earlier
        # trace.
        exact, _ = function_types.make_canonicalized_monomorphic_type(
            args, kwargs, {}, function.function_type
        )
        if (args or kwargs) and not exact.flat_inputs:
            # TensorFlow's compiler takes the Python values for tensors.
            concrete = tf.function(partial(function, *args, **kwargs))
            concrete = concrete.get_concrete_function()
    except Exception as error:
        hint = inputs.shape_hint([*args, *kwargs.values()])
        text = f"{name} cannot be traced: {error}"
        raise TpuCheckError(f"{text}\n{hint}" if hint else text) from error
    specs = tuple(exact.flat_inputs)
    passed = [_name(tensor) for tensor in _passed(concrete)]
    if len(passed) > len(specs):
        # An input_signature has inputs that have defaults, and were not given.
        raise MissingInputError(name, passed[len(specs) :], ", ".join(passed))
    traced = _traced(name, concrete, specs, has_sources=True, names=names)
    return replace(traced, training=mode.get("training"))


def from_keras_model(
    model: Function,
    specs: Mapping[str, tf.TensorSpec],
    mode: Mapping[str, bool],
    *,
    has_sources: bool = True,
) -> Traced:
    """Traces a Keras model for shapes of its inputs, by their names."""
    name = name_of(model)

    def call(*given: tf.Tensor) -> Any:
        structure = model.inputs[0] if len(given) == 1 else model.input
        return model(tf.nest.pack_sequence_as(structure, given), **mode)

    flat = tuple(specs.values())
    try:
        concrete = tf.function(call).get_concrete_function(*flat)
    except Exception as error:
        raise TpuCheckError(f"{name} cannot be traced: {error}") from error
    traced = _traced(name, concrete, flat, has_sources=has_sources)
    return replace(traced, training=mode.get("training"))


def from_keras_file(
    path: Path, args: tuple[Example, ...], given: Mapping[str, Example]
) -> Traced:
    """Loads a Keras model, and traces it for the given shapes of its inputs."""
    if not path.exists():
        raise TpuCheckError(f"{path}: no such file")
    try:
        model = tf.keras.models.load_model(path, compile=False)
    except Exception as error:
        raise TpuCheckError(f"{path} cannot be loaded: {_cause(error)}") from error
    declared = inputs.of_keras_model(model)
    if declared is None:
        raise TpuCheckError(
            f"{path}: the model does not know its inputs; write it after its first"
            " call, or check a function that calls it"
        )
    mode, given = inputs.call_mode(model, args, given)
    specs = inputs.fixed(name_of(model), declared, args, given)
    return from_keras_model(model, specs, mode, has_sources=False)


def _cause(error: Exception) -> str:
    """What ends the loading of a Keras file, without the file's own text."""
    custom = re.search(r"Could not locate (\w+) '([^']+)'", str(error))
    if custom is None:
        return str(error)
    kind, name = custom.groups()
    return (
        f"it has the {kind} {name!r}, which the file does not define. Check the model "
        "itself, as file.py:name, or the folder that model.export writes"
    )


def from_saved_model(
    folder: Path,
    name: str | None,
    args: tuple[Example, ...],
    given: Mapping[str, Example],
) -> Traced:
    """Reads a signature of a SavedModel.

    If the signature does not fix the shape of an input, `given` must have it: a shape,
    or an object with a shape and dtype. If there is only one input, `args` may have its
    shape instead.
    """
    name, declared = inputs.of_signature(folder, name)
    if declared is not None:
        inputs.fixed(name, declared, args, given)
    model = tf.saved_model.load(str(folder))
    signatures = dict(model.signatures)
    if name not in signatures:
        raise inputs.no_signature(folder, name, signatures)
    concrete = signatures[name]
    loaded = {
        key: tf.TensorSpec(tensor.shape, tensor.dtype, key)
        for key, tensor in zip(_keys(concrete), _passed(concrete), strict=True)
    }
    specs = inputs.fixed(name, loaded, args, given)
    names = captures.named_in_model(model)
    traced = _traced(
        name, concrete, tuple(specs.values()), has_sources=False, names=names
    )
    # The variables of the function exist only as long as the model object.
    concrete._opwright_model = model
    return replace(traced, signature=name)


def lower(traced: Traced) -> bytes | tuple[Blocker, ...]:
    """The serialized HLO module, or the parts that XLA cannot compile."""
    foreign = tuple(
        Blocker(
            argument.kind,
            argument.name,
            reason := f"{refuses} no values of {dtype.name}",
            remedy=remedy_for(reason, dtypes=[dtype.name]),
            cause="host" if dtype in FOREIGN else "dtype",
        )
        for argument in traced.arguments
        if (refuses := _refuses(dtype := tf.as_dtype(argument.dtype)))
    )
    if foreign:
        # For a captured tensor, the ops that use it are reported, because the tensor
        # itself has no helpful name.
        named = tuple(each for each in foreign if each.op != "captured")
        return (*named, *_unsupported(traced)) or foreign
    if any(map(no_tpu_kernel, _operations(traced.function.graph, set()))):
        return _unsupported(traced)
    try:
        # This lowers for the default device, not for "TPU". The HLO is the same for all
        # devices, and lowering for a missing device fails on constants.
        generate = compiler_ir.from_concrete_function(
            _without_unneeded(traced), list(traced.specs)
        )
        module: bytes = generate(stage="hlo_serialized")
        return module
    except (ValueError, tf.errors.OpError, NotImplementedError) as error:
        return _blockers(traced, str(error))


def _without_unneeded(traced: Traced) -> Any:
    """The function without ops that no result needs, which a call drops, too.

    `for i in tf.range(n)` leaves such a Range, which XLA could not compile.
    """
    concrete = traced.function
    needed = _needed(concrete.graph)
    rest = (op for op in concrete.graph.get_operations() if op not in needed)
    if all(op.type == "Placeholder" for op in rest):
        return concrete

    def call(*given: tf.Tensor) -> Any:
        # TensorFlow drops them from a function that another one calls.
        return concrete._call_flat(list(given), concrete.captured_inputs)

    return tf.function(call, autograph=False).get_concrete_function(*traced.specs)


def _refuses(dtype: tf.DType) -> str | None:
    """What has no values of a dtype, and its verb; None if TPUs have them."""
    if dtype in FOREIGN:
        return "XLA has"
    return "TPUs have" if missing_on_tpus([dtype.name]) else None


def op_types(traced: Traced) -> tuple[str, ...]:
    """The distinct OP_NAMEs in a function and in the functions that it calls."""
    found = (op.type for op in _operations(traced.function.graph, set()))
    return tuple(dict.fromkeys(found))


def sized_by_values(traced: Traced) -> tuple[str, ...]:
    """The ops that make sizes which values decide, each with its place."""
    found = []
    for op in _operations(traced.function.graph, set()):
        if op.type in _SIZED_BY_VALUES:
            where, _ = place(traced, op)
            found.append(f"{op.type} ({where or op.name})")
    return tuple(dict.fromkeys(found))


def _traced(
    name: str,
    concrete: Any,
    specs: tuple[tf.TensorSpec, ...],
    *,
    has_sources: bool,
    names: Mapping[int, str] = MappingProxyType({}),
) -> Traced:
    """The function with its arguments; `names` has those of captures, by id."""
    passed = [
        _argument(_name(tensor), "argument", spec)
        for tensor, spec in zip(_passed(concrete), specs, strict=True)
    ]
    variables = {id(variable.handle): variable for variable in concrete.variables}
    captured = []
    for number, tensor in enumerate(concrete.captured_inputs):
        variable = variables.get(id(tensor))
        if variable is not None:
            captured.append(_argument(variable.name, "variable", variable))
        else:
            named = names.get(id(tensor), f"captured_{number}")
            captured.append(_argument(named, "captured", tensor))
    return Traced(name, concrete, specs, (*passed, *captured), has_sources)


def name_of(function: Function) -> str:
    """The name of a program, for people."""
    graph = getattr(function, "graph", None)
    if graph and isinstance(function, tf.types.experimental.ConcreteFunction):
        # Its own name has a number and is in bytes.
        return str(graph.name)
    return str(
        getattr(function, "__name__", None)
        or getattr(function, "name", None)
        or type(function).__name__
    )


def _keys(concrete: Any) -> list[str]:
    """The names of a signature's inputs, in the order of the graph."""
    passed = _passed(concrete)
    keys: list[str] = list(getattr(concrete, "_arg_keywords", None) or ())
    return keys if len(keys) == len(passed) else [_name(tensor) for tensor in passed]


def _passed(concrete: Any) -> list[Any]:
    """The placeholders of the caller's arguments; captures come after them."""
    inputs: list[Any] = concrete.inputs
    return inputs[: len(inputs) - len(concrete.captured_inputs)]


def _name(tensor: Any) -> str:
    return str(tensor.op.name)


def _argument(name: str, kind: Any, spec: Any) -> Argument:
    if not spec.shape.is_fully_defined():
        raise TpuCheckError(
            f"{kind} {name!r} has shape {_shape(spec.shape)}, and a TPU program takes"
            f" fixed shapes: {_remedy(kind, spec)}"
        )
    shape = tuple(spec.shape.as_list())
    size = 0 if spec.dtype in FOREIGN else spec.dtype.size * spec.shape.num_elements()
    return Argument(name.partition(":")[0], kind, spec.dtype.name, shape, size)


def _remedy(kind: str, spec: tf.TensorSpec) -> str:
    if kind != "argument":
        return "create it with a fixed shape"
    sizes = "..." if spec.shape.rank is None else example_sizes(spec.shape.as_list())
    return f"give tf.TensorSpec({sizes}, tf.{spec.dtype.name})"


def _shape(shape: tf.TensorShape) -> str:
    return "unknown" if shape.rank is None else str(tuple(shape.as_list()))


def _blockers(traced: Traced, message: str) -> tuple[Blocker, ...]:
    """All unsupported ops. XLA's message names only the first of them."""
    if unsupported := _unsupported(traced):
        return unsupported
    reason = sentence(message)
    named = {name for pair in _NODE.findall(message) for name in pair}
    for op in _operations(traced.function.graph, set()):
        if op.name not in named:
            continue
        if match := _CONSTANT.match(reason):
            name = input_names(op)[int(match[1])]
            reason = f"`{name}` depends on values, and must be a compile-time constant"
            return (_blocker(traced, op, reason, "constant", (name,)),)
        return (_blocker(traced, op, reason, "shape"),)
    return (Blocker("", "", reason, remedy=remedy_for(message)),)


def _unsupported(traced: Traced) -> tuple[Blocker, ...]:
    """The ops that XLA has no kernels for.

    An Identity is left out if it returns the result of another of them.
    """
    found = {
        op: reason
        for op in _operations(traced.function.graph, set())
        if (reason := no_kernel(op) or no_tpu_kernel(op))
    }
    return tuple(
        _blocker(traced, op, reason)
        for op, reason in found.items()
        if op.type != "Identity" or _origin(op) not in found
    )


def _origin(op: _Op) -> _Op:
    """The op whose result a row of Identity ops passes on, also out of functions."""
    while op.type == "Identity":
        tensor = op.inputs[0]
        op = tensor.op
        called = op.get_attr("f").name if op.type in _CALLS else ""
        if (inner := graph_of(op.graph, called)) is not None:
            op = inner.outputs[tensor.value_index].op
    return op


def _blocker(
    traced: Traced,
    op: _Op,
    reason: str,
    cause: str = "kernel",
    arguments: tuple[str, ...] = (),
) -> Blocker:
    where, code = place(traced, op)
    dtypes = {tensor.dtype.name for tensor in (*op.inputs, *op.outputs)}
    row = row_for(f"{op.name}: {reason}", op.type, dtypes)
    if cause == "kernel" and "=" in reason:
        cause, arguments = "dtype", arguments_of_dtypes(op)
    if row is not None and row.cause == "host":
        cause = "host"
    return Blocker(
        op.type,
        op.name,
        reason,
        where,
        code,
        remedy=None if row is None else row.remedy,
        cause=cause,
        arguments=arguments,
        dtypes=supported_dtypes(op) if cause == "dtype" else (),
    )


def _operations(graph: Any, seen: set[str]) -> Iterator[_Op]:
    """The ops of a graph that run, and those of the functions that they call."""
    run = _needed(graph)
    for op in graph.get_operations():
        if op not in run:
            continue
        yield op
        for value in op.node_def.attr.values():
            for called in (value.func, *value.list.func):
                inner = graph_of(graph, called.name)
                if inner is not None and called.name not in seen:
                    seen.add(called.name)
                    yield from _operations(inner, seen)


def graph_of(graph: Any, name: str) -> Any:
    """The graph of a function that a graph calls; None if it has none."""
    function = graph._get_function(name) if name else None
    # TensorFlow's own `Defun`s, as in `tf.nn.ctc_loss`, have no graph.
    return getattr(function, "graph", None)


def _needed(graph: Any) -> set[_Op]:
    """The ops that a function's results and effects need; TensorFlow drops others."""
    ends = [*(tensor.op for tensor in graph.outputs), *graph.control_outputs]
    found: set[_Op] = set()
    while ends:
        if (op := ends.pop()) not in found:
            found.add(op)
            ends += [*(tensor.op for tensor in op.inputs), *op.control_inputs]
    return found


def sentence(message: str) -> str:
    """The sentence in an error message of XLA that describes the problem."""
    text = message.removeprefix("Failed getting HLO text: '")
    return text.strip().splitlines()[0].strip().removesuffix("'")


def place(traced: Traced, op: _Op) -> tuple[str | None, str | None]:
    """Where the user's code made an op, and the line; without lines, its scopes."""
    if traced.has_sources:
        return _source(op)
    scope = op.name.rpartition("/")[0]
    return (f"in {scope}" if scope else None), None


def _source(op: _Op) -> tuple[str | None, str | None]:
    """The file and line of the user's code that created an op, and its text."""
    folders = tuple(
        f"{Path(file).parent}/"
        for name in _LIBRARIES
        if (file := getattr(sys.modules.get(name), "__file__", None))
    )
    frames = [f for f in op.traceback if not f.filename.startswith(folders)]
    if not frames:
        return None, None
    frame = frames[-1]
    path = Path(frame.filename)
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    code = linecache.getline(frame.filename, frame.lineno).strip()
    return f"{path}:{frame.lineno}", code or None
