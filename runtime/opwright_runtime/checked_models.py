"""Loads a SavedModel whose ops check their conditions when they run."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias, cast

import tensorflow as tf

from opwright_runtime._binding import assertions
from opwright_runtime._binding import attrs as attr_values
from opwright_runtime._binding.op_info import ArgInfo, OpInfo
from opwright_runtime._internals import SavedModel, op_def_registry

__all__ = ["load_checked"]

_MODEL = "saved_model.pb"
#: It has a digest of the model, which the checks change.
_FINGERPRINT = "fingerprint.pb"

#: The spec of an input, or those of a list of inputs.
_Specs: TypeAlias = tf.TensorSpec | list[tf.TensorSpec]


def load_checked(
    path: str | os.PathLike[str],
    tags: str | Sequence[str] | None = None,
    options: tf.saved_model.LoadOptions | None = None,
) -> Any:
    """Loads a SavedModel as `tf.saved_model.load` does, with checks of its ops.

    Before an op whose opdef has `requires`, the loaded functions check these
    conditions. A call that does not meet them raises an InvalidArgumentError. Without
    the checks it could end the process. The model on disk does not change.

    Args:
        path: the folder of the model.
        tags: the tags of its graph, as `tf.saved_model.load` takes them.
        options: as `tf.saved_model.load` takes them.

    Raises:
        OSError: the folder has no `saved_model.pb`, or none that can be read.
    """
    source = Path(path)
    model = SavedModel()
    try:
        model.ParseFromString((source / _MODEL).read_bytes())
    except Exception as error:  # Of protobuf, which TensorFlow does not export.
        raise OSError(f"{source / _MODEL} is no SavedModel: {error}") from None
    kept: list[object] = [_add_checks(one.graph_def) for one in model.meta_graphs]
    folder = Path(tempfile.mkdtemp(prefix="opwright-"))
    try:
        for entry in source.iterdir():
            if entry.name not in (_MODEL, _FINGERPRINT):
                (folder / entry.name).symlink_to(entry.resolve())
        (folder / _MODEL).write_bytes(model.SerializeToString())
        loaded: Any = tf.saved_model.load(str(folder), tags, options)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        _name_source(error, str(folder), str(source))
        raise
    # The loaded model refers to its assets in this folder, and to the checks.
    weakref.finalize(loaded, _release, folder, kept)
    return loaded


def _release(folder: Path, kept: list[object]) -> None:
    """Releases what a model needs that is no longer there."""
    kept.clear()
    shutil.rmtree(folder, ignore_errors=True)


def _name_source(error: BaseException, copy: str, source: str) -> None:
    """Puts the folder of the model into an error, in place of that of the copy."""
    error.args = tuple(
        one.replace(copy, source) if isinstance(one, str) else one for one in error.args
    )
    if isinstance(error, tf.errors.OpError):
        vars(error)["_message"] = str(vars(error)["_message"]).replace(copy, source)


def _add_checks(graph: Any) -> list[object]:
    """Adds checks to the nodes of a GraphDef and of its functions.

    Returns:
        What the checks need as long as they are in use.
    """
    checkers = _Checkers(graph)
    compiled = _compiled(graph.library.function)
    checkers.add_to(graph.node, compiled=False)
    # Checks are functions, which are added to the same list.
    for function in [*graph.library.function]:
        name = function.signature.name
        checkers.add_to(function.node_def, compiled=name in compiled)
    graph.library.function.extend(checkers.functions)
    return checkers.traced


def _compiled(functions: Sequence[Any]) -> set[str]:
    """The functions that XLA compiles, and those that they call."""
    by_name = {one.signature.name: one for one in functions}
    nodes = [node for one in functions for node in one.node_def]
    pending = [one.signature.name for one in functions if _is_compiled(one)]
    pending += [name for one in nodes if _is_compiled(one) for name in _called(one)]
    found = set[str]()
    while pending:
        name = pending.pop()
        if name in by_name and name not in found:
            found.add(name)
            pending += [each for one in by_name[name].node_def for each in _called(one)]
    return found


def _is_compiled(one: Any) -> bool:
    """Whether a function, or a node that calls one, is to be compiled by XLA."""
    return "_XlaMustCompile" in one.attr and bool(one.attr["_XlaMustCompile"].b)


def _called(node: Any) -> Iterator[str]:
    """The names of the functions in the attrs of a node."""
    for attr in node.attr.values():
        if attr.HasField("func"):
            yield attr.func.name
        yield from (one.name for one in attr.list.func)


class _Checkers:
    """The checks of the nodes of one graph, one for nodes that are alike."""

    def __init__(self, graph: Any) -> None:
        self.functions: list[Any] = []
        # TensorFlow knows the Python code of an op only while its graph exists.
        self.traced: list[object] = []
        self.opwright: Any = import_module("opwright")
        self.known: dict[bytes, tuple[str, tuple[str, ...]] | None] = {}
        self.taken = {one.signature.name for one in graph.library.function}

    def add_to(self, nodes: Any, *, compiled: bool) -> None:
        """Adds a check before each of `nodes` whose op has conditions.

        Args:
            compiled: whether XLA may compile the nodes.
        """
        for node in [*nodes]:
            info = self.info(node.op)
            if info is None:
                continue
            specs = [*_specs(info, node)]
            found = self.of(info, node, specs, compiled)
            if found is None:
                continue
            name, needed = found
            check = nodes.add(
                name=f"{node.name}/opwright_check",
                op="StatefulPartitionedCall",
                device=node.device,
            )
            check.input.extend(_inputs(info, node, specs, needed))
            dtypes = [
                one.dtype.as_datatype_enum
                for arg, spec in zip(info.inputs, specs, strict=True)
                if arg.name in needed
                for one in (spec if isinstance(spec, list) else [spec])
            ]
            check.attr["f"].func.name = name
            check.attr["Tin"].list.type.extend(dtypes)
            check.attr["Tout"].list.type.append(tf.bool.as_datatype_enum)
            node.input.append(f"^{check.name}")

    def info(self, op: str) -> OpInfo | None:
        """An op that has conditions."""
        if op_def_registry.get(op) is None or op not in self.opwright.op_names():
            return None
        cls = self.opwright.op_class(op)
        info: OpInfo | None = cls.op_def if cls.REQUIRES else None
        return info

    def of(
        self, info: OpInfo, node: Any, specs: Sequence[_Specs], compiled: bool
    ) -> tuple[str, tuple[str, ...]] | None:
        """The function that checks a node, and the inputs that it takes."""
        key = info.name.encode() + bytes([compiled])
        for name in sorted(node.attr):
            key += name.encode() + node.attr[name].SerializeToString()
        if key not in self.known:
            self.known[key] = self.made(info, node, specs, compiled)
        return self.known[key]

    def made(
        self, info: OpInfo, node: Any, specs: Sequence[_Specs], compiled: bool
    ) -> tuple[str, tuple[str, ...]] | None:
        attrs = {
            attr.name: _attr(info, node, attr.name)
            for attr in info.attrs
            if not attr.inferred
        }
        with tf.Graph().as_default():
            found = assertions.checker(info, specs, attrs, compiled=compiled)
        if found is None:
            return None
        function = found.function.function_def
        name = f"opwright_check_{info.name.replace('>', '_')}"
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        function.signature.name = name
        self.functions.append(function)
        self.traced.append(found.function)
        return name, found.names


def _specs(info: OpInfo, node: Any) -> Iterator[_Specs]:
    """A spec for each input of a node, or a list of them."""
    for arg in info.inputs:
        if arg.type_list_attr is not None:
            yield [*map(_spec, _attr(info, node, arg.type_list_attr))]
        elif arg.count is not None:
            count = _attr(info, node, arg.count)
            yield [_spec(_dtype(info, node, arg))] * count
        else:
            yield _spec(_dtype(info, node, arg))


def _spec(dtype: str | tf.DType) -> tf.TensorSpec:
    # The stubs know no spec without a shape.
    return tf.TensorSpec(cast(tf.TensorShape, None), tf.as_dtype(dtype))


def _dtype(info: OpInfo, node: Any, arg: ArgInfo) -> Any:
    return arg.dtype if arg.type_attr is None else _attr(info, node, arg.type_attr)


def _attr(info: OpInfo, node: Any, name: str) -> Any:
    """An attr of a node. A saved node lacks attrs that have their defaults."""
    attr = info.attr[name]
    if name not in node.attr:
        return attr.default
    return attr_values.read(attr.kind, node.attr[name])


def _inputs(
    info: OpInfo, node: Any, specs: Sequence[_Specs], needed: Sequence[str]
) -> Iterator[str]:
    """The inputs of a node that its check needs, as the node names them."""
    at = 0
    for arg, spec in zip(info.inputs, specs, strict=True):
        count = len(spec) if isinstance(spec, list) else 1
        if arg.name in needed:
            yield from node.input[at : at + count]
        at += count
