"""A call as Python text, with which it is made again."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from opwright_codegen import naming
from opwright_runtime._binding.op_info import OpInfo
from support.equivalence.calls import RENAMED

# Above so many elements, equal ones are written as one.
WRITTEN = 8
# What no expression is known for.
UNKNOWN = "<of the example>"


def sources(parts: list[str], info: OpInfo, number: int) -> dict[str, Any]:
    """The expressions of an example for the arguments of its call with a number.

    Args:
        parts: the example's statements.

    Returns:
        By the OpDef's names; a list for an argument that is written as a list.
    """
    calls = [
        (node, skipped)
        for node in ast.walk(ast.parse("".join(parts)))
        if isinstance(node, ast.Call)
        and (skipped := _skipped(node.func, info.name)) is not None
    ]
    if not calls:
        return {}
    calls.sort(key=lambda one: (one[0].lineno, one[0].col_offset))
    # A call that is written once may be made several times.
    call, skipped = calls[min(number, len(calls) - 1)]
    order = [arg.name for arg in info.inputs] + [attr.name for attr in info.required]
    named = {
        **{arg.python_name: arg.name for arg in info.inputs},
        **{attr.python_name: attr.name for attr in info.attrs},
    }
    pairs = list(zip(order, call.args[skipped:], strict=False))
    pairs += [(named.get(one.arg or "", ""), one.value) for one in call.keywords]
    return {
        name: (
            [ast.unparse(one) for one in value.elts]
            if isinstance(value, (ast.List, ast.Tuple))
            else ast.unparse(value)
        )
        for name, value in pairs
        if name
    }


def _skipped(function: ast.expr, op: str) -> int | None:
    """How many arguments stand before an op's own; None for another function."""
    path = ast.unparse(function).split(".")
    if path[-1] == naming.function_name(op):
        return 0
    # The scope.
    return 1 if path[-2:] == [naming.class_name(op), "create"] else None


def before(parts: list[str], info: OpInfo, said: str) -> str:
    """The statements of an example before the one that calls the op.

    Args:
        said: the call, which needs no statements if it has no name of theirs.
    """
    names = {naming.function_name(info.name), naming.class_name(info.name)}
    kept, made = [], set[str]()
    for part in parts:
        used, stored = _names(part)
        if used & names:
            break
        kept.append(part)
        made |= stored
    return "".join(kept) if made & _names(said)[0] else ""


def _names(part: str) -> tuple[set[str], set[str]]:
    """The names in statements, and those that they make."""
    try:
        tree = ast.parse(part)
    except SyntaxError:  # An argument that has no expression.
        return set(re.findall(r"\w+", part)), set()
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    stored = {node.id for node in found if isinstance(node.ctx, ast.Store)}
    return {node.id for node in found}, stored | {*functions}


def call_text(info: OpInfo, mode: str, arguments: Mapping[str, Any]) -> str:
    """The call through `tf.raw_ops`; attrs at their defaults are left out."""
    renamed = RENAMED.get(info.name, {})
    inputs = {arg.name for arg in info.inputs}
    texts = {
        renamed.get(name, name): text(value)
        for name, value in arguments.items()
        if name in inputs or not _is_default(info, name, value)
    }
    passed = {renamed.get(name, name) for name in inputs if mode == "function"}
    body = ", ".join(
        f"{name}={name if name in passed else value}" for name, value in texts.items()
    )
    called = f"tf.raw_ops.{info.name}({body})"
    if mode == "eager":
        return called
    names = [name for name in texts if name in passed]
    lambda_ = f"lambda {', '.join(names)}: {called}" if names else f"lambda: {called}"
    values = ", ".join(f"{name}={texts[name]}" for name in names)
    return f"tf.function({lambda_})({values})"


def _is_default(info: OpInfo, name: str, value: Any) -> bool:
    default = info.attr[name].default
    return default is not None and repr(default) == repr(value)


def text(value: Any) -> str:
    """An argument as an expression."""
    # Not by class, which would need the module that has it.
    if hasattr(value, "array"):
        said = tensor_text(value.dtype, value.array)
        if not value.ones:
            return said
        shape = f"[1] * {value.ones - 1} + {list(value.array.shape)}"
        return f"tf.expand_dims(tf.reshape({said}, {shape}), 0)"
    if hasattr(value, "source"):
        return value.source or UNKNOWN
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(text, value))}]"
    if isinstance(value, tf.DType):
        return f"tf.{value.name}"
    if isinstance(value, tf.TensorShape):
        return "None" if value.rank is None else repr(value.as_list())
    return number_text(value)


def number_text(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "np.nan" if math.isnan(value) else f"{'-' * (value < 0)}np.inf"
    if isinstance(value, complex):
        return f"complex({number_text(value.real)}, {number_text(value.imag)})"
    return repr(value)


def tensor_text(dtype: tf.DType, array: np.ndarray) -> str:
    if dtype.is_quantized:
        stored = tf.as_dtype(array.dtype)
        return f"tf.bitcast({tensor_text(stored, array)}, tf.{dtype.name})"
    shape = list(array.shape)
    if not array.size:
        return f"tf.zeros({shape}, tf.{dtype.name})"
    values = array.reshape(-1).tolist()
    if array.size > WRITTEN and all(repr(one) == repr(values[0]) for one in values):
        return (
            f"tf.fill({shape}, tf.constant({number_text(values[0])}, tf.{dtype.name}))"
        )
    return f"tf.constant({_nested(array.tolist())}, tf.{dtype.name})"


def _nested(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_nested, value))}]"
    return number_text(value)
