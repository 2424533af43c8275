"""Raw ops: functions with the names, keywords and defaults of `tf.raw_ops`.

A raw op is a copy of an op's function. Its code object is a copy of the function's with
renamed arguments, so a call takes as long as a call of the function.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from types import CodeType, FunctionType
from typing import Any

import tensorflow as tf

from opwright_runtime import errors
from opwright_runtime._binding.op import Op
from opwright_runtime._internals import CompositeTensor, TensorType
from opwright_runtime._patches import keep_from_autograph
from opwright_runtime.types import ShapeLike, TensorShape, as_shape


class RawOps:
    """The raw ops of the installed TensorFlow, which are created on first use.

    Attributes:
        module: the name of the module of raw ops. Its package has the ops.
        ops: by OP_NAME, the module, relative to the package, and the class.
        keywords: for each OP_NAME, the keywords that differ from the OpDef's names. The
            keys are the OpDef's names.
    """

    def __init__(
        self,
        module: str,
        ops: Mapping[str, tuple[str, str]],
        keywords: Mapping[str, Mapping[str, str]],
    ) -> None:
        self.module = module
        self.ops = ops
        self.keywords = keywords
        keep_from_autograph(module)

    def get(self, name: str) -> object:
        """The `__getattr__` of the module: creates the raw op `name`."""
        if name == "__all__":
            return self.names()
        if name.startswith("_") or name not in self.ops:
            raise AttributeError(self._unknown(name))
        op_class = self._class(name)
        if not hasattr(tf.raw_ops, name):
            raise AttributeError(_absent(op_class))
        made = raw_op(op_class, self.keywords.get(name, {}), self.module)
        vars(sys.modules[self.module])[name] = made
        return made

    def names(self) -> list[str]:
        """The `__dir__` of the module: all names, sorted."""
        return sorted(name for name in self.ops if hasattr(tf.raw_ops, name))

    def _class(self, name: str) -> type[Op]:
        module, cls = self.ops[name]
        package = self.module.rpartition(".")[0]
        found: type[Op] = getattr(import_module(module, package), cls)
        return found

    def _unknown(self, name: str) -> str:
        lower = {one.lower(): one for one in self.names()}
        close = [lower[one] for one in get_close_matches(name.lower(), lower)]
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        return f"module {self.module!r} has no attribute {name!r}{hint}"


def _absent(op_class: type[Op]) -> str:
    """Why the installed TensorFlow has no raw op for a class."""
    name = op_class.OP_NAME
    has = f"TensorFlow {tf.__version__} has no tf.raw_ops.{name}"
    try:
        op_class._info()
    except errors.OpUnknownError as unknown:
        return f"{has}. {unknown}"
    group, _, function = op_class.__module__.rpartition(".")
    return f"{has}; opwright has the op: write `from {group} import {function}`"


def raw_op(
    op_class: type[Op], keywords: Mapping[str, str], module: str
) -> Callable[..., object]:
    """The raw op of a class, as a function of `module`.

    Args:
        op_class: the class of the op. Its function is in the same module.
        keywords: the keywords that differ from the OpDef's names. The keys are the
            OpDef's names.
        module: the `__module__` of the result.
    """
    source: Any = sys.modules[op_class.__module__]
    function: FunctionType = getattr(source, source.__all__[-1])
    code, name = function.__code__, op_class.OP_NAME
    spelled = {n: op_class.PYTHON_NAMES.get(n, n) for n in keywords}
    spelled |= op_class.PYTHON_NAMES
    renamed = {argument: keywords.get(n, n) for n, argument in spelled.items()}
    cls = _raw_class(op_class, keywords)
    made = FunctionType(
        _with_keywords_only(code, name, renamed),
        {
            **function.__globals__,
            "__name__": module,
            op_class.__name__: cls,
            "as_shape": _given_shape,
        }
        | ({f"{cls.__name__}Outputs": cls.Outputs} if hasattr(cls, "Outputs") else {}),
        name,
    )
    defaults = dict.fromkeys(code.co_varnames[: code.co_argcount], errors.MISSING)
    defaults |= function.__kwdefaults__ or {}
    made.__kwdefaults__ = {renamed.get(n, n): value for n, value in defaults.items()}
    made.__doc__ = _renamed_in(function.__doc__ or "", renamed)
    shown: Any = made
    shown.__signature__ = inspect.signature(getattr(tf.raw_ops, name))
    return made


def _with_keywords_only(
    code: CodeType, name: str, renamed: Mapping[str, str]
) -> CodeType:
    """A copy of a code object whose arguments are keyword-only and partly renamed.

    Bytecode refers to an argument by its index in the local variables, not by its name.
    The index does not change.
    """
    names: dict[str, Any] = {"co_name": name}
    if hasattr(code, "co_qualname"):  # Python 3.10 has none.
        names["co_qualname"] = name
    return code.replace(
        co_argcount=0,
        co_kwonlyargcount=code.co_argcount + code.co_kwonlyargcount,
        co_varnames=tuple(renamed.get(one, one) for one in code.co_varnames),
        **names,
    )


def _renamed_in(doc: str, renamed: Mapping[str, str]) -> str:
    """A docstring with renamed arguments, in its entries and in backquotes."""
    if not renamed:
        return doc

    def rename(found: re.Match[str]) -> str:
        return re.sub(r"\w+", lambda word: renamed.get(word[0], word[0]), found[0])

    return re.sub(r"(?m)^ +\w+: |`[^`]+`", rename, doc)


def _given_shape(value: ShapeLike) -> TensorShape:
    """`as_shape` without None, which stands for the default."""
    if value is None:
        raise TypeError("None is the default")
    return as_shape(value)


def _raw_class(op_class: type[Op], keywords: Mapping[str, str]) -> type[Op]:
    """A subclass of the op's class with the names of `tf.raw_ops`, for a raw op."""
    members: dict[str, object] = {"__slots__": (), "PYTHON_NAMES": keywords}
    outputs = getattr(op_class, "Outputs", None)
    if outputs is not None:
        fields = [arg.name for arg in op_class._info().outputs]
        if list(outputs._fields) != fields:
            members["Outputs"] = namedtuple(op_class.__name__, fields)
    made: type[Op] = type(op_class.__name__, (_RawOp, op_class), members)
    return made


class _RawOp(Op):
    """The base of classes that run a raw op if the fast path did not."""

    __slots__ = ()

    @classmethod
    def _call(
        cls,
        name: str | None,
        inputs: Sequence[object],
        attrs: Mapping[str, object],
        fast_path_error: Exception | None,
    ) -> object:
        if any(map(_is_composite, _flat(inputs))):
            try:
                return cls._dispatched(name, inputs, attrs)
            except (AttributeError, TypeError, ValueError):
                # The call below raises an error, because the op needs tensors. An
                # IndexedSlices of lists has no dtype.
                pass
        given = {
            attr: cls._default(attr) if value is None else value
            for attr, value in attrs.items()
        }
        return super()._call(name, inputs, given, fast_path_error)

    @classmethod
    def _refused(
        cls, surplus: Sequence[object], keywords: Mapping[str, object]
    ) -> errors.OpError:
        if not surplus:
            return super()._refused(surplus, keywords)
        names = ", ".join(
            inspect.signature(getattr(tf.raw_ops, cls.OP_NAME)).parameters
        )
        return errors.make(
            errors.OpInputError,
            cls.OP_NAME,
            f"{cls.OP_NAME}: a raw op takes keywords only: {names}",
            given=surplus,
        )

    @classmethod
    def _default(cls, attr: str) -> object:
        """The default of an attr, for which None stands in `tf.raw_ops`; or None."""
        info = cls._info()
        return (info.absent.get(attr) or info.attr[attr]).default

    @classmethod
    def _dispatched(
        cls, name: str | None, inputs: Sequence[object], attrs: Mapping[str, object]
    ) -> object:
        """The result of TensorFlow's own raw op, which dispatches on types.

        It is for calls with a composite tensor, such as a RaggedTensor.
        """
        info = cls._info()
        given = {arg.name: one for arg, one in zip(info.inputs, inputs, strict=True)}
        given |= {attr: value for attr, value in attrs.items() if attr in info.attr}
        keywords = {cls.PYTHON_NAMES.get(n, n): value for n, value in given.items()}
        function: Callable[..., object] = getattr(tf.raw_ops, cls.OP_NAME)
        return function(**keywords, name=name)


def _flat(values: Sequence[object]) -> Iterator[object]:
    for value in values:
        yield from value if isinstance(value, (list, tuple)) else (value,)


def _is_composite(value: object) -> bool:
    """Whether a value is a composite tensor, such as a RaggedTensor."""
    return isinstance(value, CompositeTensor) and not isinstance(value, TensorType)
