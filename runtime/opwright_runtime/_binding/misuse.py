"""Errors for calls that are wrong whatever the values of their arguments.

These are: calls of a class itself, arguments, options and attributes that an op does
not have, and ops that are used as a tensor but have no single output. No call that
succeeds runs code of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING

import tensorflow as tf

from opwright_runtime import errors
from opwright_runtime._binding.fast_path import EagerTensor
from opwright_runtime._binding.op_info import OpInfo
from opwright_runtime._internals import TensorType

if TYPE_CHECKING:
    from opwright_runtime._binding.protocol import OpLike


def unknown(
    name: str, names: Iterable[str], function_named: Callable[[str], str | None]
) -> errors.OpError:
    """The error for an op name without a class.

    `function_named` finds a function of TensorFlow by a name without its module.
    """
    if not isinstance(name, str):
        return errors.bad_argument(
            errors.OpUnknownError, "op_class", "name", name, "the OP_NAME of an op"
        )
    plain = {_plain(one): one for one in names}
    # A lower bound would find names that have only some letters in common.
    found = get_close_matches(_plain(name.rpartition(".")[2]), plain, n=3, cutoff=0.7)
    close = [plain[one] for one in found]
    hint = f"; close to it: {', '.join(close)}" if close else ""
    function = name if name.startswith("tf.") else None
    if _plain(name) not in plain:
        function = function or function_named(name)
    if function:
        hint += f"; opwright.for_tf({function!r}) finds the ops of a function"
    elif not close:
        hint = f"; opwright.search({name!r}) looks ops up by what they do"
    return errors.make(
        errors.OpUnknownError,
        name,
        f"no op is called {name!r}{hint}",
        given=name,
        allowed=tuple(close) or None,
    )


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def constructor_error(cls: type[OpLike], arguments: Sequence[object]) -> errors.OpError:
    """The error for `MatMul(a, b)`."""
    info = cls._info()
    return errors.make(
        errors.OpInputError,
        info.name,
        f"{cls.__name__}(...) makes no op: write {_calls(cls)}",
        given=arguments or None,
        allowed=_calls(cls),
    )


def scope_error(cls: type[OpLike], given: object) -> errors.OpError:
    """The error for a `create` whose first argument is not a scope."""
    info = cls._info()
    what, instead = errors.repr_short(given), _calls(cls)
    if given is errors.MISSING:
        what = "nothing"
    if isinstance(given, tf.Graph):
        what = "a tf.Graph"
        instead = (
            f"{cls.__name__}.create({', '.join(('Scope(graph)', *_positional(info)))})"
        )
    return errors.make(
        errors.OpInputError,
        info.name,
        f"{info.name}: scope must be a Scope, not {what}; write {instead}",
        argument="scope",
        given=given,
        allowed="a Scope",
    )


def _calls(cls: type[OpLike]) -> str:
    """The calls that create the op, as source code."""
    info = cls._info()
    function = cls.__module__.rpartition(".")[2]
    given = ", ".join(_positional(info))
    comma = ", " if given else ""
    return (
        f"{function}({given}), or {cls.__name__}.create(Scope.current(){comma}{given})"
    )


def function_arguments(
    cls: type[OpLike], surplus: Sequence[object], keywords: Mapping[str, object]
) -> errors.OpError:
    """The error for arguments that the op's function does not have.

    Args:
        cls: the op's class.
        surplus: the arguments after the last positional one that the function has.
        keywords: the keyword arguments that the function does not have.
    """
    info = cls._info()
    positional, named = _positional(info), (*_named(info), "name")
    if surplus:
        return _surplus(info, positional, named, surplus)
    return _unknown_keyword(info, info.name, (*positional, *named), keywords)


def create_arguments(
    cls: type[OpLike], surplus: Sequence[object], keywords: Mapping[str, object]
) -> errors.OpError:
    """The error for arguments that the op's `create` does not have."""
    info = cls._info()
    positional, named = ("scope", *_positional(info)), _dtypes(info)
    if surplus:
        return _surplus(info, positional, named, surplus)
    name, given = next(iter(keywords.items()))
    fields = tuple(attr.python_name for attr in info.options)
    if name in (*fields, "name") or (name == "options" and fields):
        return _not_a_keyword(cls, positional, name, given)
    options = f"{cls.__name__}.Options"
    return _unknown_keyword(
        info, info.name, (*positional, *named), keywords, {options: fields}
    )


def _not_a_keyword(
    cls: type[OpLike], positional: Sequence[str], name: str, given: object
) -> errors.OpError:
    """The error for what `create` takes in another way than as a keyword."""
    info = cls._info()
    text = f"{name}={errors.repr_short(given)}"
    function = f", or {cls.__module__.rpartition('.')[2]}"
    made = list(positional)
    if name == "name":
        what = "the name in the scope"
        made[0] = f"Scope.current().with_name({errors.repr_short(given)})"
    elif name == "options":
        what, function = "options without a name", ""
        made.append("options")
    else:
        what = "options as an object"
        made.append(f"{cls.__name__}.Options({text})")
    call = f"{function}({', '.join((*positional[1:], text))})" if function else ""
    return errors.make(
        errors.OpInputError,
        info.name,
        f"{info.name}: create takes {what}: write "
        f"{cls.__name__}.create({', '.join(made)}){call}",
        argument=name,
        given=given,
        allowed=(*positional, *_dtypes(info)),
    )


def not_options(cls: type[OpLike], given: object) -> errors.OpError:
    """The error for an argument of `create` in the place of its options."""
    info = cls._info()
    options = f"{cls.__name__}.Options"
    fields = [attr.python_name for attr in info.options]
    is_options = hasattr(type(given), "explicit")
    what = type(given).__qualname__ if is_options else errors.repr_short(given)
    if isinstance(given, type):
        what = f"the class {given.__qualname__}"
    return errors.make(
        errors.OpOptionError,
        info.name,
        f"{info.name}: options must be {options}, not {what}; "
        f"write {options}({fields[0]}=...), which has {', '.join(fields)}",
        argument="options",
        given=given,
        allowed=options,
    )


def rebuild_arguments(
    cls: type[OpLike], has: Sequence[str], unknown: Mapping[str, object]
) -> errors.OpError:
    """The error for arguments that `rebuild` does not have."""
    info = cls._info()
    return _unknown_keyword(info, f"{info.name}.rebuild", has, unknown)


def missing_field(info: OpInfo, name: str) -> str:
    """The text of the error for a name that the inputs of an op do not have."""
    has = [arg.python_name for arg in info.inputs]
    has += [attr.python_name for attr in info.attrs]
    close = _close(name, has)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    if name in {arg.python_name for arg in info.outputs}:
        hint = f"; {name} is an output of the op"
    known = f"it has {', '.join(has)}" if has else "it has none"
    return f"{info.name} has no input or attr {name!r}; {known}{hint}"


def option_arguments(
    cls: type[OpLike], keywords: Mapping[str, object], surplus: Sequence[object]
) -> errors.OpError:
    """The error for arguments that `Options` does not have."""
    info = cls._info()
    fields = tuple(attr.python_name for attr in info.options)
    callee = f"{info.name}.Options"
    if keywords:
        of_create = (*_positional(info), *_dtypes(info))
        hint = next((name for name in keywords if name in of_create), None)
        hint = f"; {hint} is an argument of create" if hint else ""
        return _unknown_keyword(info, callee, fields, keywords, hint=hint)
    return errors.make(
        errors.OpInputError,
        info.name,
        f"{callee}: takes its arguments by name, {', '.join(fields)}; "
        f"{errors.repr_short(surplus[0])} came without one",
        given=surplus,
        allowed=fields,
    )


def _surplus(
    info: OpInfo,
    positional: Sequence[str],
    named: Sequence[str],
    surplus: Sequence[object],
) -> errors.OpError:
    count = len(positional) + len(surplus)
    takes = f"{len(positional)} positional argument{'s' * (len(positional) != 1)}"
    listed = f" ({', '.join(positional)})" if positional else ""
    by_name = f"; by name: {', '.join(named)}" if named else ""
    if positional[:1] != ("scope",) and any(
        hasattr(type(o), "explicit") for o in surplus
    ):
        by_name += f"; an Options object belongs to {info.name}.create"
    return errors.make(
        errors.OpInputError,
        info.name,
        f"{info.name}: takes {takes}{listed}, and {count} came{by_name}",
        given=surplus,
        allowed=tuple(positional),
    )


def _unknown_keyword(
    info: OpInfo,
    callee: str,
    has: Sequence[str],
    keywords: Mapping[str, object],
    options: Mapping[str, Sequence[str]] = MappingProxyType({}),
    hint: str = "",
) -> errors.OpError:
    """The error for a keyword that neither the callee nor its `options` have.

    `hint` says what to do; without one, names that are close do.
    """
    name = next(iter(keywords))
    close = _close(name, has)
    known = [", ".join(has)]
    for owner, fields in options.items():
        if fields:
            known.append(f"{owner} has {', '.join(fields)}")
            close = close or [f"{owner}({one}=...)" for one in _close(name, fields)]
    hint = hint or (f"; did you mean {' or '.join(close)}?" if close else "")
    return errors.make(
        errors.OpInputError,
        info.name,
        f"{callee}: has no argument {name!r}; it has {'; '.join(known)}{hint}",
        argument=name,
        given=keywords[name],
        allowed=tuple(has),
    )


def _close(name: str, has: Sequence[str]) -> list[str]:
    """The names in `has` that the caller may have meant by `name`."""
    return (
        _synonyms_of(name, has)
        or _misspelt(name, has)
        or [one for one in has if one.startswith(name) or name.startswith(one)]
        # A misspelt name of TensorFlow's functions, such as `dtyp`.
        or [
            one
            for known in _misspelt(name, _EVERY_SYNONYM, cutoff=0.8)
            for one in _synonyms_of(known, has)
        ][:1]
    )


def _synonyms_of(name: str, has: Sequence[str]) -> list[str]:
    family = frozenset[str]().union(*(names for names in _SYNONYMS if name in names))
    return [one for one in has if one in family]


def _misspelt(name: str, has: Sequence[str], cutoff: float = 0.6) -> list[str]:
    plain = {one.lower(): one for one in has}
    found = get_close_matches(name.lower(), plain, n=3, cutoff=cutoff)
    return [plain[one] for one in found]


def _positional(info: OpInfo) -> tuple[str, ...]:
    inputs = [arg.python_name for arg in info.inputs]
    return (*inputs, *(a.python_name for a in info.required if a.default is None))


def _named(info: OpInfo) -> tuple[str, ...]:
    return (*(attr.python_name for attr in info.options), *_dtypes(info))


def _dtypes(info: OpInfo) -> tuple[str, ...]:
    """The dtypes that have a default. `create` and the function take them by name."""
    return tuple(a.python_name for a in info.required if a.default is not None)


# Sets of names for the same argument, in TensorFlow's functions and in ops.
_SYNONYMS = (
    frozenset(
        {"axis", "axes", "dim", "dims", "dimension", "concat_dim", "split_dim"}
        | {"reduction_indices", "dimensions", "batch_dims", "squeeze_dims"}
    ),
    frozenset({"keepdims", "keep_dims"}),
    frozenset(
        {"input", "inputs", "x", "a", "value", "values", "tensor", "input_tensor"}
    ),
    frozenset({"y", "b", "other"}),
    frozenset({"x", "t"}),
    frozenset({"y", "e"}),
    frozenset({"condition", "input"}),
    frozenset({"type", "type_"}),
    frozenset({"dtype", "T", "DstT", "out_type", "output_type", "Tout"}),
    frozenset({"shape", "dims", "size"}),
    frozenset({"perm", "permutation"}),
    frozenset({"params", "input", "tensor"}),
    frozenset({"labels", "targets"}),
    frozenset({"indices", "ids"}),
    frozenset({"adj_x", "adjoint_a", "transpose_a"}),
    frozenset({"adj_y", "adjoint_b", "transpose_b"}),
)
_EVERY_SYNONYM = sorted(frozenset[str]().union(*_SYNONYMS))


def not_a_tensor(cls: type[OpLike], what: str) -> errors.OpError:
    """The error for an op without a single output that is used as a tensor.

    `what` says which use fails: "has no truth value".
    """
    info = cls._info()
    slots = cls.__slots__
    if not slots:
        why = "it has no output"
    elif len(slots) == 1:
        why = f"its output is a list: take {slots[0]}, or an element of it"
    else:
        why = f"it has {len(slots)} outputs: take one of {', '.join(slots)}"
    return errors.make(
        errors.OpInputError,
        info.name,
        f"{info.name}: the op {what}; {why}",
        allowed=slots,
    )


def not_operation(cls: type[OpLike], given: object) -> errors.OpError:
    """The error for what `from_operation` does not take."""
    op, hint = cls._info().name, ""
    if isinstance(given, tf.Operation):
        what = f"a {given.type}"
    elif isinstance(given, tf.compat.v1.NodeDef):
        node: tf.compat.v1.NodeDef = given
        what = f"a NodeDef of {node.op}"
        hint = (
            "import its GraphDef with tf.import_graph_def(graph_def, name=''), and "
            f"give graph.get_operation_by_name({node.name!r})"
        )
    else:
        what = errors.repr_short(given)
        if isinstance(given, TensorType) and not isinstance(given, EagerTensor):
            hint = "give the .op of the tensor"
    return errors.make(
        errors.OpInputError,
        op,
        f"{op}.from_operation: takes an operation of type {op}, not "
        f"{what}{hint and f'; {hint}'}",
        argument="operation",
        given=given,
        allowed=op,
    )


def missing_attribute(cls: type[OpLike], name: str) -> str:
    """The text of the error for an attribute that the op's object does not have."""
    slots = cls.__slots__
    outputs = (
        f"output is {slots[0]}"
        if len(slots) == 1
        else f"outputs are {', '.join(slots)}"
    )
    has = f"; its {outputs}" if slots else "; it has no outputs"
    close = get_close_matches(name, slots, n=1, cutoff=0.5) if len(slots) > 1 else []
    hint = f"; did you mean {close[0]}?" if close else ""
    info = cls._info()
    names = {"options", *info.attr_in_python, *(one.python_name for one in info.inputs)}
    if name in names:
        hint += "; inputs and attrs of an op in a graph are in .inputs"
    return f"{cls.__name__!r} object has no attribute {name!r}{has}{hint}"
