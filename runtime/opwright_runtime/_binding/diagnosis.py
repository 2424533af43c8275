"""Finds out why TensorFlow refused an op, from the arguments of the call.

No call that succeeds runs code of this module.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from opwright_notation.evaluation import Facts, Tensor, values_used
from opwright_notation.sizes import MisfitError, count
from opwright_runtime import errors, kernels, libraries, native
from opwright_runtime._binding import attrs as attr_values
from opwright_runtime._binding import matching, narrowing, shape_functions
from opwright_runtime._binding.op_info import ArgInfo, Deprecation, OpInfo, refused_attr
from opwright_runtime._internals import TensorType, core, ops


def explain(
    error: Exception,
    info: OpInfo,
    inputs: Sequence[Any],
    attrs: Mapping[str, Any],
    graph: tf.Graph | None,
) -> Exception:
    """The error to raise in place of `error`; `error` if it is not TensorFlow's.

    Args:
        error: the exception of the call.
        info: the op.
        inputs: the inputs of the call.
        attrs: the attrs of the call, by name.
        graph: the graph of the call; None in eager mode.
    """
    if isinstance(error, core._NotOkStatusException):
        error = core._status_to_exception(error)
    elif not (_is_tensorflow(error) or type(error) in _BUILTIN):
        return error
    call = _FailedCall(info, inputs, attrs, graph, error)
    try:
        found = call.reason() or call.execution(call.given_text(), call.rules_text())
    except Exception:
        # Arguments may be objects of any class, which may raise an error when they are
        # inspected. TensorFlow's message is then more helpful than theirs.
        found = call.execution("")
    found.__cause__ = error
    return found


# Built-in exceptions that TensorFlow raises for bad arguments.
_BUILTIN = frozenset(
    {AssertionError, AttributeError, IndexError, KeyError, NotImplementedError}
    | {OverflowError, RuntimeError, TypeError, ValueError, UnicodeDecodeError}
)


def _is_tensorflow(error: Exception) -> bool:
    return type(error).__module__.startswith("tensorflow.")


@dataclass(frozen=True)
class _Operand:
    """An input of a call, or an element of an input that is a list."""

    arg: ArgInfo
    label: str
    value: Any

    @property
    def dtype(self) -> tf.DType | None:
        """Its dtype if it is a tensor; None for a plain value."""
        value = self.value
        return tf.as_dtype(value.dtype) if isinstance(value, TensorType) else None

    def converted(self, dtype: tf.DType | None) -> tf.DType | None:
        """The dtype of a plain value as a tensor; None if it does not convert."""
        for leaf in tf.nest.flatten(self.value):
            if isinstance(leaf, ops.SymbolicTensor):
                # TensorFlow would add a node to the graph of the tensor.
                return leaf.dtype if dtype in (None, leaf.dtype) else None
        try:
            with tf.init_scope():
                return ops.convert_to_tensor(self.value, dtype=dtype).dtype
        except Exception:
            return None


def _remedy(dtype: tf.DType | None, allowed: object) -> str:
    """What to write in place of integers, which TensorFlow reads as `dtype`."""
    dtypes = allowed if isinstance(allowed, (list, tuple)) else (allowed,)
    if dtype is None or not dtype.is_integer:
        return ""
    if not any(isinstance(one, tf.DType) and one.is_floating for one in dtypes):
        return ""
    return f", which is {dtype.name}: write 1.0 instead of 1"


@dataclass(frozen=True)
class _FailedCall:
    """A call that failed. Each method checks for one reason."""

    info: OpInfo
    inputs: Sequence[Any]
    attrs: Mapping[str, Any]
    graph: tf.Graph | None
    error: Exception

    def reason(self) -> errors.OpError | None:
        """The error for the first reason that applies; None if no reason is known."""
        for refused in (
            self.missing,
            self.mode,
            self.lists,
            self.kinds,
            self.graphs,
            self.fixed_dtypes,
            self.shared_dtypes,
            self.lengths,
            self.attr_values,
            self.kernel,
            self.sizes,
        ):
            found = refused()
            if found is not None:
                return found
        return None

    def _error(
        self, family: type[errors.OpError], message: str, **fields: Any
    ) -> errors.OpError:
        text = f"{self.info.name}: {message}"
        return errors.make(family, self.info.name, text, cause=self.error, **fields)

    def _operand_error(
        self, operand: _Operand, allowed: object, why: str = ""
    ) -> errors.OpError:
        """The error for an operand that is not one of `allowed`, for a reason `why`."""
        shown = operand.value if operand.dtype is None else operand.dtype
        plain = operand.converted(None) if operand.dtype is None else None
        return self._error(
            errors.OpInputError,
            f"{operand.label} must be {errors.format_allowed(allowed)}{why}, "
            f"not {errors.repr_short(shown)}{_remedy(plain, allowed)}",
            argument=operand.label,
            given=shown,
            allowed=allowed,
        )

    def _operands(self) -> Iterator[_Operand]:
        for arg, value in zip(self.info.inputs, self.inputs, strict=True):
            if not arg.is_list:
                yield _Operand(arg, arg.python_name, value)
                continue
            for index, one in enumerate(value):
                yield _Operand(arg, f"{arg.python_name}[{index}]", one)

    def missing(self) -> errors.OpError | None:
        for arg, value in zip(self.info.inputs, self.inputs, strict=True):
            values = value if arg.is_list and isinstance(value, (list, tuple)) else []
            for one in (value, *values):
                if one is None or one is errors.MISSING:
                    why = ": None is no tensor" if one is None else ""
                    return self._error(
                        errors.OpInputError,
                        f"{arg.python_name} is missing{why}",
                        argument=arg.python_name,
                        allowed="a tensor",
                    )
        for name, value in self.attrs.items():
            if value is errors.MISSING:
                return self._missing_attr(self.info.attr[name])
        return None

    def _missing_attr(self, attr: attr_values.AttrInfo) -> errors.OpError:
        allowed: object = attr.allowed
        if allowed is None:
            try:
                attr_values.whole(attr, errors.MISSING)
            except attr_values.BadValueError as refused:
                allowed = refused.allowed
        words = errors.format_allowed(allowed)
        return self._error(
            errors.OpAttrError,
            f"{attr.python_name} is missing: it must be {words}",
            argument=attr.python_name,
            allowed=allowed,
        )

    def mode(self) -> errors.OpError | None:
        gone = self.info.deprecated
        if gone is not None and self.graph is None:
            current = tf.version.GRAPH_DEF_VERSION
            if current >= gone.version:
                return removed(self.info.name, gone, current, self.error)
        if self.info.has_ref and self.graph is None:
            return graph_only(self.info, self.error)
        if self.graph is None and "You must feed a value" in str(self.error):
            return self._error(
                errors.OpModeError,
                "exists in graphs only, for a run of the graph feeds its value; make "
                "it in a tf.Graph",
                given="eager mode",
                allowed="a tf.Graph",
            )
        return None

    def lists(self) -> errors.OpError | None:
        for arg, value in zip(self.info.inputs, self.inputs, strict=True):
            if arg.is_list and not isinstance(value, (list, tuple)):
                return self._error(
                    errors.OpInputError,
                    f"{arg.python_name} must be a list of tensors, "
                    f"not {errors.repr_short(value)}",
                    argument=arg.python_name,
                    given=value,
                    allowed="a list of tensors",
                )
        return None

    def kinds(self) -> errors.OpError | None:
        """Values that resemble tensors: composite tensors, Keras' symbolic inputs."""
        for operand in self._operands():
            value = operand.value
            if isinstance(value, tf.Variable):
                continue  # A composite tensor too, which ops read.
            if isinstance(value, tf.__internal__.CompositeTensor):
                name = type(value).__name__
                article = "an" if name[0] in "AEIO" else "a"
                what, instead = f"{article} {name}", _parts(value)
            elif type(value).__name__ == "KerasTensor":
                what = "a KerasTensor, which stands for what a Keras model will get"
                instead = "call the op in the `call` of a keras.Layer"
            else:
                continue
            return self._error(
                errors.OpInputError,
                f"{operand.label} must be a tensor, not {what}; {instead}",
                argument=operand.label,
                given=value,
                allowed="a tensor",
            )
        return None

    def graphs(self) -> errors.OpError | None:
        """Tensors that the op cannot use in its graph, or in eager mode."""
        for operand in self._operands():
            value = operand.value
            if isinstance(value, ops.EagerTensor):
                if self.graph is not None and not self.graph.building_function:
                    return self._error(
                        errors.OpInputError,
                        f"{operand.label} is an eager tensor, which a tf.Graph does "
                        "not take; give its value",
                        argument=operand.label,
                        given=value,
                        allowed="a tensor of the graph, or a value",
                    )
            elif isinstance(value, tf.Tensor) and self._is_foreign(value.graph):
                where, other, hint = "this graph", "another graph", ""
                if self.graph is None:
                    where, other, hint = "eager mode", "a graph", _into_graph(value)
                return self._error(
                    errors.OpInputError,
                    f"{operand.label} is a tensor of {other}, {value.name}, which "
                    f"{where} cannot reach{hint}",
                    argument=operand.label,
                    given=value,
                    allowed=f"a tensor of {where}, or a value",
                )
        return None

    def _is_foreign(self, graph: tf.Graph) -> bool:
        own: Any = self.graph
        while own is not None:
            if own is graph:
                return False
            own = getattr(own, "outer_graph", None)
        return True

    def fixed_dtypes(self) -> errors.OpError | None:
        for operand in self._operands():
            arg, dtype = operand.arg, operand.dtype
            if arg.is_ref and (dtype is None or not dtype._is_ref_dtype):
                return self._operand_error(operand, "a ref, such as VariableV2 makes")
            if dtype is None and operand.converted(arg.dtype) is None:
                if arg.dtype is not None:
                    return self._operand_error(operand, (arg.dtype,))
                if operand.converted(None) is None:
                    return self._not_a_tensor(operand)
            wanted = arg.dtype
            if wanted and dtype is not None and dtype.base_dtype != wanted:
                return self._operand_error(operand, (wanted,))
        return None

    def _not_a_tensor(self, operand: _Operand) -> errors.OpError:
        value = operand.value
        outputs = getattr(type(value), "op_def", None)
        if outputs is not None:
            names = [f".{output.python_name}" for output in outputs.outputs]
            what = f"a {type(value).__name__}, which has {len(names)} outputs"
            hint = f"; give one of {', '.join(names)}" if names else ""
        elif field := _field_meant(value):
            what = f"the method {value.__name__!r} of a tuple"
            hint = f"; the output is .{field}"
        else:
            what = errors.repr_short(value)
            hint = _too_large(value) or _conversion_error(value)
        return self._error(
            errors.OpInputError,
            f"{operand.label} must be a tensor, or a value that makes one, "
            f"not {what}{hint}",
            argument=operand.label,
            given=value,
            allowed="a tensor, or a value that makes one",
        )

    def shared_dtypes(self) -> errors.OpError | None:
        """Inputs whose dtype is one attr: the dtype must be allowed, and all equal."""
        first: dict[str, _Operand] = {}
        shared = [one for one in self._operands() if one.arg.dtype is None]
        # Tensors of any position decide the dtype. Plain values follow.
        for operand in sorted(shared, key=lambda one: one.dtype is None):
            name = operand.arg.type_attr or operand.arg.type_list_attr or ""
            allowed = self.info.attr[name].allowed
            known = None if operand.arg.type_list_attr else first.get(name)
            expected = None if known is None else _dtype_of(known)
            dtype = operand.dtype
            if dtype is None:
                dtype = operand.converted(expected)
                if dtype is None and expected is not None and known is not None:
                    return self._operand_error(
                        operand, (expected,), f" as {known.label} is"
                    )
            if dtype is None:
                continue
            if allowed is not None and dtype.base_dtype not in allowed:
                default = self.info.attr[name].default
                if operand.dtype is None and default and operand.converted(default):
                    continue
                why = self.info.attr[name].brought(dtype.base_dtype)
                return self._operand_error(operand, allowed, why)
            if expected is not None and dtype.base_dtype != expected:
                assert known is not None
                return self._operand_error(
                    operand, (expected,), f" as {known.label} is"
                )
            first.setdefault(name, operand)
        return None

    def lengths(self) -> errors.OpError | None:
        first: dict[str, tuple[str, int]] = {}
        for arg, value in zip(self.info.inputs, self.inputs, strict=True):
            name = arg.count or arg.type_list_attr
            if name is None:
                continue
            length, minimum = len(value), self.info.attr[name].minimum
            other, expected = first.setdefault(name, (arg.python_name, length))
            if minimum is not None and length < minimum:
                words = f"at least {count(minimum, 'element')}"
            elif length != expected:
                words = f"{count(expected, 'element')} as {other} has"
            else:
                continue
            return self._error(
                errors.OpInputError,
                f"{arg.python_name} must have {words}, not {length}",
                argument=arg.python_name,
                given=length,
                allowed=words,
            )
        return None

    def attr_values(self) -> errors.OpError | None:
        for name, value in self.attrs.items():
            attr = self.info.attr[name]
            try:
                attr_values.checked(attr, value)
            except attr_values.BadValueError as refused:
                return refused_attr(self.info, attr, value, refused, self.error)
        return None

    def kernel(self) -> errors.OpError | None:
        if "Multiple OpKernel registrations" in str(self.error):
            found = libraries.several(self.info.name)
            return self._error(
                errors.OpKernelError,
                f"several libraries have its kernel: {', '.join(found)}; load one of "
                "them, or rename the op in one",
                given=found,
                allowed="one library",
            )
        if not re.search(
            r"Could not find device for node|No OpKernel was registered"
            r"|registered kernels|No registered",
            str(self.error),
        ):
            return None
        rows = kernels.kernels(self.info.name)
        given = self._dtypes()
        allowed = tuple(f"{device} ({words})" for device, words in kernels.served(rows))
        there = f"there are some for {'; '.join(allowed)}" if rows else "it has none"
        if self.info.native and not native.loaded():
            devices = " and ".join(self.info.native)
            there += f"; opwright's library has some for {devices}: {native.advice()}"
        return self._error(
            errors.OpKernelError,
            f"no kernel can run it here{f' with {given}' if given else ''}; {there}",
            given=given,
            allowed=allowed,
        )

    def _dtypes(self) -> str:
        dtypes: dict[str, str] = {}
        for operand in self._operands():
            dtype = _dtype_of(operand)
            if operand.arg.type_attr is not None and dtype is not None:
                dtypes.setdefault(operand.arg.type_attr, dtype.name)
        for name, value in self.attrs.items():
            if self.info.attr[name].kind == "type":
                dtypes[name] = attr_values.normalised("type", value).name
        return ", ".join(f"{name}={dtype}" for name, dtype in dtypes.items())

    def sizes(self) -> errors.OpError | None:
        """Inputs whose sizes contradict the shapes in the opdef."""
        if not self.info.shapes or not isinstance(self.error, _SHAPES_REFUSED):
            return None
        if self.info.native and native.loaded() and self.graph is None:
            # Errors of opwright's kernels are more precise: they name the feature or
            # table.
            return None
        if self.graph is None and self.info.name in shape_functions.STRICTER:
            return None
        try:
            matching.match(self.info.shapes, self._tensors(), self._facts())
        except matching.MismatchError as mismatch:
            tensor = mismatch.tensor
            return self._error(
                errors.OpInputError,
                str(mismatch),
                argument=tensor.label,
                given=tensor.sizes,
                allowed=mismatch.allowed,
            )
        except MisfitError:
            pass
        return None

    def _tensors(self) -> list[Tensor]:
        """The inputs whose rank is known."""
        found = []
        for arg, value in zip(self.info.inputs, self.inputs, strict=True):
            for index, one in enumerate(value if arg.is_list else [value]):
                sizes = _sizes(one)
                if sizes is None:
                    continue
                at = index if arg.is_list else None
                label = (
                    f"{arg.python_name}[{index}]" if arg.is_list else arg.python_name
                )
                found.append(Tensor(arg.name, label, sizes, at))
        return found

    def _facts(self) -> Facts:
        """The attrs and values that the shapes of inputs depend on."""
        info = self.info
        attrs: dict[str, object] = {}
        labels: dict[str, str] = {}
        for attr in info.absent.values():  # The call leaves them at their defaults.
            attrs[attr.name] = attr.default
            labels[attr.name] = attr.python_name
        for attr in info.attrs:
            value = self.attrs.get(attr.name, attr.default)
            attrs[attr.name] = (
                None if value is None else attr_values.plain(attr.kind, value)
            )
            labels[attr.name] = attr.python_name
        values: dict[str, object] = {}
        names = [arg.name for arg in info.inputs]
        expected = {name: info.shapes[name] for name in names if name in info.shapes}
        used = values_used(expected, names)
        for arg, given in zip(info.inputs, self.inputs, strict=True):
            if arg.count is not None:
                attrs[arg.count] = len(given)
                labels[arg.count] = arg.python_name
            elif arg.type_list_attr is not None:
                attrs[arg.type_list_attr] = ("",) * len(given)
                labels[arg.type_list_attr] = arg.python_name
            if arg.name in used:
                values[arg.name] = None if arg.is_list else _integers(given)
                labels[arg.name] = arg.python_name
        return Facts(attrs, values, labels=labels)

    def given_text(self) -> str:
        """The inputs, and the attrs that differ from their defaults."""
        given = [
            f"{one.label}: {errors.repr_short(one.value)}" for one in self._operands()
        ]
        for name, value in self.attrs.items():
            attr = self.info.attr[name]
            known = attr_values.whole(attr, value)
            if not attr_values.is_default(attr, known):
                shown = known if attr.kind == "type" else value
                given.append(f"{attr.python_name}: {errors.repr_short(shown)}")
        return ", ".join(given)

    def rules_text(self) -> str:
        """The conditions on shapes of inputs, if the call does not meet them all."""
        if not self.info.shapes or not isinstance(self.error, _SHAPES_REFUSED):
            return ""
        try:
            matching.match(self.info.shapes, self._tensors(), self._facts())
        except matching.MismatchError:
            return ""
        except MisfitError:
            pass
        else:
            return ""
        rules = []
        for arg in self.info.inputs:
            found = _WHERE.fullmatch(self.info.shapes.get(arg.name, ""))
            if found is not None and _names(found[2]) <= _names(found[1]):
                rules.append(f"{arg.python_name}: {found[1]} where {found[2]}")
        return f"; shape of {', '.join(rules)}" if rules else ""

    def execution(self, given: str, rules: str = "") -> errors.OpError:
        """The error with TensorFlow's own message, the inputs `given`, and a hint."""
        message = getattr(self.error, "message", None) or str(self.error)
        message = re.sub(r"\{\{function_node [^}]*\}\} ?", "", message)
        message = message.replace(f" [Op:{self.info.name}]", "").strip()
        # Some kernels begin their message with the name of the op, which `_error` adds.
        message = message.removeprefix(f"{self.info.name}: ")
        hints = [f"; {hint}" for words, hint in _HINTS.items() if words in message]
        shown = f" (given {given})" if given else ""
        return self._error(
            errors.OpExecutionError,
            f"{message}{shown}{rules}{''.join(hints)}",
            given=given or None,
        )


# Words of TensorFlow's messages, and what to do about what they say.
_HINTS: Mapping[str, str] = {
    words: hint
    for hint, several in {
        "transpose the input to NHWC, or run the op on a GPU": (
            "only supports NHWC",
            "only supports the NHWC",
        ),
        "the axis of filter before its last one has the size of the input's channels, "
        "unless the convolution has groups": (
            "must be evenly divisible by number of groups",
            "must be evenly divisible by filter depth",
        ),
    }.items()
    for words in several
}

#: The shape of an input with a condition on it.
_WHERE = re.compile(r"where\(\(([^()]*?),?\), (.*)\)")


def _names(text: str) -> set[str]:
    """The names of sizes in a part of the notation."""
    return {*re.findall(r"[A-Za-z_]\w*", text)} - {"len", "and", "or", "not", "max"}


def removed(
    op: str, deprecation: Deprecation, producer: int, cause: Exception | None = None
) -> errors.OpError:
    """The error for a removed op: the version that removed it, and its replacement."""
    return errors.make(
        errors.OpRemovedError,
        op,
        f"{op}: removed in GraphDef version {deprecation.version}; this is {producer}. "
        f"{deprecation.explanation.rstrip('.')}. A graph imported from an older "
        "version still takes it",
        given=producer,
        allowed=f"GraphDef versions before {deprecation.version}",
        cause=cause,
    )


def graph_only(info: OpInfo, cause: Exception | None = None) -> errors.OpError:
    """The error for an op with refs in eager mode."""
    refs = [arg.python_name for arg in (*info.inputs, *info.outputs) if arg.is_ref]
    return errors.make(
        errors.OpModeError,
        info.name,
        f"{info.name}: exists in graphs only, for {', '.join(dict.fromkeys(refs))} "
        "is a ref; make it in a tf.Graph",
        argument=refs[0],
        given="eager mode",
        allowed="a tf.Graph",
        cause=cause,
    )


def _into_graph(tensor: tf.Tensor) -> str:
    """A hint that says how an op in eager mode gets to a tensor of a graph."""
    if tensor.graph.building_function:
        return "; return it from the function that makes it"
    return "; to add the op to that graph, call create of the class with Scope(graph)"


def _parts(value: Any) -> str:
    """A hint that says what to pass in place of a composite tensor."""
    if isinstance(value, tf.RaggedTensor):
        return "give its flat_values and row_splits, or its to_tensor()"
    if isinstance(value, tf.SparseTensor):
        return "give its indices, values and dense_shape, or tf.sparse.to_dense of it"
    if isinstance(value, tf.IndexedSlices):
        return "give its indices and values, or tf.convert_to_tensor of it"
    return "give the tensors that it is made of"


# The errors that TensorFlow raises for sizes that do not fit.
_SHAPES_REFUSED = (tf.errors.InvalidArgumentError, ValueError)


def _sizes(value: object) -> tuple[int | None, ...] | None:
    """The shape of an input; None if it is not known."""
    try:
        shape = getattr(value, "shape", None)
        shape = np.asarray(value).shape if shape is None else shape
        return tuple(tf.TensorShape(shape).as_list())
    except Exception:
        return None


# The values of inputs with more elements are not read. Shapes depend on the values of
# short inputs only: axes, permutations, paddings, sizes.
_MOST_VALUES = 1024


def _integers(value: object) -> object:
    """The values of an integer input; None for other inputs and for large ones."""
    sizes = _sizes(value)
    if sizes is None or None in sizes:
        return None
    # A nested list has an element for each row, even if rows are empty.
    if math.prod(size or 1 for size in sizes) > _MOST_VALUES:
        return None
    try:
        array = np.asarray(value)
    except Exception:
        return None
    return _nested(array.tolist()) if array.dtype.kind in "iu" else None


def _nested(value: object) -> object:
    return tuple(map(_nested, value)) if isinstance(value, list) else value


def _field_meant(value: Any) -> str | None:
    """The field that the caller meant by a method of an outputs tuple, if any.

    A field that would have the name of a method of tuples has an underscore: `count_`.
    """
    field = f"{getattr(value, '__name__', '')}_"
    fields = getattr(getattr(value, "__self__", None), "_fields", ())
    return field if field in fields else None


def _too_large(value: object) -> str:
    """A hint about the first integer in a value that int64 does not hold, if any."""
    one = narrowing.unrepresentable(value, tf.int64)
    if not isinstance(one, int):
        return ""
    what = "it" if one is value else errors.repr_short(one)
    if 0 <= one < 2**64:
        return f"; int64 does not hold {what}, give tf.constant(..., tf.uint64)"
    try:
        float(one)
    except OverflowError:
        return f"; no dtype holds {what}"
    return f"; no dtype of integers holds {what}, give a float"


def _conversion_error(value: Any) -> str:
    """Why the `__tf_tensor__` of a value fails; empty without that method."""
    if not hasattr(value, "__tf_tensor__"):
        return ""
    try:
        ops.convert_to_tensor(value)
    except Exception as error:
        return f": {' '.join(str(error).split())}"
    return ""


def _dtype_of(operand: _Operand) -> tf.DType | None:
    dtype = operand.dtype or operand.converted(None)
    return None if dtype is None else dtype.base_dtype
