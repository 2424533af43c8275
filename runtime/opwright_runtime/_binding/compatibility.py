"""Compares the op that a class was generated for with the op that is registered.

Classes of TensorFlow's own ops are not compared. They work with several versions of
TensorFlow. `SINCE` has the version that added each op, attr or value, and `DROPPED_IN`
the first version without an op or attr.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any

import tensorflow as tf

from opwright_runtime import errors, libraries
from opwright_runtime._binding import tables
from opwright_runtime._internals import op_def_registry


def check_on_first_call(create: FunctionType, info: Callable[[], object]) -> None:
    """Makes the first eager call of a class, or of its function, call `info`.

    Before that call, the name `execute` in the module of `create` refers to a wrapper.
    The wrapper removes itself, because it would add 30 to 80 ns to every call.
    """
    names = create.__globals__
    plain = names["execute"]

    def execute(*arguments: Any) -> Any:
        info()
        names["execute"] = plain
        return plain(*arguments)

    names["execute"] = execute


def check(op_name: str, expected: Mapping[str, str], module: str) -> None:
    """Compares the registered op with the one that the class in `module` is for.

    A new attr is compatible if it has a default. An op that is not registered passes.

    Raises:
        OpChangedError: calls would fail, or return other results than the class states.
    """
    op_def = op_def_registry.get(op_name)
    if op_def is None:
        return
    differences = list(_differences(expected, op_def))
    if not differences:
        return
    package = tables.package_of(module) or module
    both = ""
    if found := libraries.several(op_name):
        both = (
            f" {' and '.join(found)} register {op_name}, and the first one loaded "
            "defines it: load one of them, or rename the op in one."
        )
    raise errors.make(
        errors.OpChangedError,
        op_name,
        f"{op_name}: {module} was generated for another {op_name} than the loaded"
        f" library has: {'; '.join(differences)}.{both} If you changed the opdef, build"
        f" the library again. Otherwise load the library that {package} was generated"
        f" for, or generate {package} again: `opwright-codegen import --library` with"
        " the loaded library, then `opwright-codegen generate`",
    )


def schema(op_def: Any) -> Mapping[str, str]:
    """The parts of an op that calls depend on, in the form of `SCHEMA`."""
    found = {f"input {arg.name}": _type(arg) for arg in op_def.input_arg}
    found |= {f"output {arg.name}": _type(arg) for arg in op_def.output_arg}
    return found | {f"attr {attr.name}": attr.type for attr in op_def.attr}


def _differences(expected: Mapping[str, str], op_def: Any) -> Iterator[str]:
    found = dict(schema(op_def))
    for attr in op_def.attr:
        name = f"attr {attr.name}"
        if name not in expected and attr.HasField("default_value"):
            del found[name]
    for name in {**expected, **found}:
        was, now = expected.get(name, "none"), found.get(name, "none")
        if was != now:
            yield f"{name}: generated for {was}, found {now}"
    for kind in ("input", "output"):
        was, now = (
            ", ".join(name for name in some if name.startswith(kind))
            for some in (expected, found)
        )
        if expected.keys() == found.keys() and was != now:
            yield f"generated for {was}, found {now}"


def _type(arg: Any) -> str:
    if arg.type_list_attr:
        return f"list of {arg.type_list_attr}"
    text = arg.type_attr or str(tf.as_dtype(arg.type).base_dtype.name)
    text = f"{arg.number_attr} * {text}" if arg.number_attr else text
    return f"ref({text})" if arg.is_ref else str(text)
