"""Graphs: their bodies, and the shapes of tensors in them.

A body is the main graph or a function of its library. Functions name a tensor
`node:output:index`, the main graph names it `node:index`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import tensorflow as tf

from opwright_runtime._internals import function_def_to_graph_def, op_def_registry
from opwright_runtime.convert.errors import ConvertError
from opwright_runtime.convert.layers import Shape

# Messages of protocol buffers, which have no types.
GraphDef: TypeAlias = Any
NodeDef: TypeAlias = Any
FunctionDef: TypeAlias = Any

# TensorFlow infers the shapes of a function inside those of its caller. Its stack ends.
_MAX_DEPTH = 200

_UNREGISTERED = re.compile(r"Op type not registered '([^']+)'")


@dataclass(frozen=True)
class Body:
    """The main graph, whose name is "", or a function of the library."""

    name: str
    nodes: Any
    function: Any = None

    def place(self, node: str) -> str:
        """The name of a node, for messages."""
        return f"{self.name}/{node}" if self.name else node


def bodies(graph: GraphDef) -> Iterator[Body]:
    yield Body("", graph.node)
    for function in graph.library.function:
        yield Body(function.signature.name, function.node_def, function)


def nodes(graph: GraphDef) -> Iterator[NodeDef]:
    for body in bodies(graph):
        yield from body.nodes


def data_inputs(node: NodeDef) -> list[str]:
    return [name for name in node.input if not name.startswith("^")]


def node_of(tensor: str) -> str:
    """The node that a tensor or a control input belongs to."""
    return tensor.removeprefix("^").partition(":")[0]


def called(node: NodeDef) -> Iterator[str]:
    """The functions that a node calls."""
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        elif value.HasField("list"):
            yield from (one.name for one in value.list.func)


@cache
def op_def(op: str) -> Any:
    """The registered OpDef of an op; None if this TensorFlow has no such op."""
    return op_def_registry.get(op)


def defaults(op: str) -> dict[str, Any]:
    """The default values of an op's attrs."""
    found = op_def(op)
    attrs = found.attr if found is not None else ()
    return {
        attr.name: attr.default_value
        for attr in attrs
        if attr.HasField("default_value")
    }


class Shapes:
    """The shapes of the tensors in some bodies of a graph."""

    def __init__(self, graph: GraphDef, wanted: Iterable[str]) -> None:
        """Infers shapes.

        Args:
            graph: the graph with its function library.
            wanted: the bodies whose shapes are needed: names of functions, or "" for
                the main graph.

        Raises:
            ConvertError: TensorFlow refuses the graph.
        """
        self._graph = graph
        self._bodies = {body.name: body for body in bodies(graph)}
        self._operations: dict[str, Mapping[str, Any]] = {}
        self._arguments: dict[str, list[Shape]] = {}
        needed = self._callers({*wanted})
        with tf.Graph().as_default() as self._library:
            library = tf.compat.v1.GraphDef(versions=graph.versions)
            library.library.CopyFrom(graph.library)
            _import(library)
            for name in self._ordered(needed):
                self._infer(self._bodies[name])

    def inputs(self, body: Body, node: NodeDef) -> list[Shape]:
        """The shapes of a node's inputs."""
        return self._of(self._operations[body.name][node.name])

    def dtypes(self, body: Body, node: NodeDef) -> list[tf.DType]:
        """The dtypes of a node's inputs."""
        operation = self._operations[body.name][node.name]
        return [tensor.dtype.base_dtype for tensor in operation.inputs]

    def _callers(self, wanted: set[str]) -> set[str]:
        """Adds all bodies that call one of the wanted ones."""
        calls = {
            name: {one for node in body.nodes for one in self._called(node)}
            for name, body in self._bodies.items()
        }
        found = set(wanted)
        while more := {name for name, used in calls.items() if used & found} - found:
            found |= more
        return found

    def _called(self, node: NodeDef) -> set[str]:
        direct = {node.op} if node.op in self._bodies else set()
        return direct | ({*called(node)} & self._bodies.keys())

    def _ordered(self, needed: set[str]) -> list[str]:
        """Callers before the functions that they call."""
        done: list[str] = []
        state: dict[str, bool] = {}
        for root in sorted(needed):
            stack = [(root, False)]
            while stack:
                name, left = stack.pop()
                if left:
                    state[name] = True
                    done.append(name)
                elif name not in state and name in needed:
                    state[name] = False
                    stack.append((name, True))
                    below = {
                        one
                        for node in self._bodies[name].nodes
                        for one in self._called(node)
                    }
                    stack += [(one, False) for one in sorted(below)]
        return done[::-1]

    def _infer(self, body: Body) -> None:
        graph = body.function
        if graph is None:
            graph = tf.compat.v1.GraphDef(versions=self._graph.versions)
            graph.node.extend(body.nodes)
        else:
            graph = self._flat(body)
        graph.versions.CopyFrom(self._graph.versions)
        _cleared(graph)
        prefix = f"body{len(self._operations)}"
        _import(graph, prefix)
        found = self._library.get_operations()
        skipped = len(prefix) + 1
        self._operations[body.name] = {
            one.name[skipped:]: one
            for one in found
            if one.name.startswith(prefix + "/")
        }
        for node in body.nodes:
            for name in self._called(node):
                self._propose(name, node, self._operations[body.name][node.name])

    def _flat(self, body: Body) -> GraphDef:
        proposed = self._arguments.get(body.name)
        stated = declared(body.function)
        shapes = [
            _both(one, other)
            for one, other in zip(stated, proposed or [None] * len(stated), strict=True)
        ]
        copy = type(body.function)()
        copy.CopyFrom(body.function)
        for attrs in copy.arg_attr.values():
            attrs.attr.pop("_output_shapes", None)
        try:
            flat, _ = function_def_to_graph_def(
                copy, [None if s is None else tf.TensorShape(s) for s in shapes]
            )
        except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
            raise ConvertError(
                f"function {body.name!r} is damaged: {error}; save the model again"
            ) from error
        return flat

    def _propose(self, name: str, node: NodeDef, operation: Any) -> None:
        """Notes the shapes that a call passes to a function."""
        count = len(self._bodies[name].function.signature.input_arg)
        unknown: list[Shape] = [None] * count
        passed = self._of(operation)
        if node.op in ("While", "StatelessWhile"):
            stated = node.attr.get("output_shapes")
            shapes = stated.list.shape if stated else ()
            passed = [_shape(tf.TensorShape(one)) for one in shapes]
        # If and Case have the number of the branch first.
        passed = passed[len(passed) - count :] if len(passed) > count else passed
        if len(passed) != count:
            passed = [*unknown]
        before = self._arguments.get(name)
        self._arguments[name] = (
            passed
            if before is None
            else [_common(a, b) for a, b in zip(before, passed, strict=True)]
        )

    def _of(self, operation: Any) -> list[Shape]:
        return [_shape(tensor.shape) for tensor in operation.inputs]


def _shape(shape: Any) -> Shape:
    return None if shape.rank is None else tuple(shape.as_list())


def declared(function: Any) -> list[Shape]:
    """The shapes that a function states for its arguments."""
    count = len(function.signature.input_arg)
    shapes: list[Shape] = [None] * count
    listed = function.attr.get("_input_shapes")
    stated = listed.list.shape if listed else ()
    for i in range(count):
        proto = stated[i] if i < len(stated) else None
        if i in function.arg_attr and "_output_shapes" in function.arg_attr[i].attr:
            value = function.arg_attr[i].attr["_output_shapes"]
            several = value.list.shape
            proto = several[0] if several else value.shape
        if function.signature.input_arg[i].type != tf.resource.as_datatype_enum:
            shapes[i] = None if proto is None else _shape(tf.TensorShape(proto))
    return shapes


def _both(one: Shape, other: Shape) -> Shape:
    """What two shapes say together; the first one counts where they differ."""
    if one is None or other is None or len(one) != len(other):
        return other if one is None else one
    return tuple(b if a is None else a for a, b in zip(one, other, strict=True))


def _common(one: Shape, other: Shape) -> Shape:
    """What holds for both of two shapes."""
    if one is None or other is None or len(one) != len(other):
        return None
    return tuple(a if a == b else None for a, b in zip(one, other, strict=True))


def _cleared(graph: GraphDef) -> None:
    """Removes what the importer would refuse: stale shapes and devices."""
    for node in graph.node:
        node.device = ""
        node.attr.pop("_class", None)
        if any(called(node)):
            node.attr.pop("_output_shapes", None)


def _import(graph: GraphDef, name: str = "") -> None:
    try:
        tf.graph_util.import_graph_def(graph, name=name)
    except (ValueError, TypeError, KeyError, tf.errors.OpError) as error:
        missing = _UNREGISTERED.search(str(error))
        if missing:
            raise ConvertError(
                f"op {missing[1]} is not registered here; import the package or load "
                "the library that has it"
            ) from error
        raise ConvertError(
            f"TensorFlow refuses the graph: {error}; save the model again"
        ) from error


def require_ops(graph: GraphDef) -> None:
    """Checks that all ops are registered here.

    Raises:
        ConvertError: an op is not registered.
    """
    functions = {function.signature.name for function in graph.library.function}
    for body in bodies(graph):
        for node in body.nodes:
            if node.op not in functions and op_def(node.op) is None:
                raise ConvertError(
                    f"node {body.place(node.name)!r}: op {node.op} is not registered "
                    "here; import the package or load the library that has it",
                    node=body.place(node.name),
                    op=node.op,
                )


def refuse_recursion(graph: GraphDef, what: str) -> None:
    """Refuses functions that call themselves, for which TensorFlow has no stack.

    Args:
        graph: the graph with its function library.
        what: the model, for the message.

    Raises:
        ConvertError: a function calls itself, also through others, or calls are nested
            too deeply.
    """
    known = functions(graph)
    below = {
        name: [
            one for node in function.node_def for one in callees(node) if one in known
        ]
        for name, function in known.items()
    }
    depths: dict[str, int] = {}
    for root in known:
        # Each entry is a function that is entered, and the calls that are left.
        path = {root: iter(below[root])} if root not in depths else {}
        while path:
            name, left = next(reversed(path.items()))
            inner = next(left, None)
            if inner is None:
                path.popitem()
                calls = [depths[one] for one in below[name]]
                depths[name] = 1 + max(calls, default=0)
            elif inner in path:
                raise ConvertError(
                    f"{what} has a function that calls itself, {inner!r}; use a loop, "
                    "and save the model again"
                )
            elif inner not in depths:
                path[inner] = iter(below[inner])
    deepest = max(depths.values(), default=0)
    if deepest > _MAX_DEPTH:
        raise ConvertError(
            f"{what} has calls of functions in {deepest} levels, and at most "
            f"{_MAX_DEPTH} are converted; call fewer functions from each other"
        )


def library_of(graph: GraphDef, name: str) -> Any:
    """The library with a function and those that it calls."""
    known = functions(graph)
    found = type(graph.library)()
    for one in sorted(reached(known, [name])):
        found.function.add().CopyFrom(known[one])
    return found


def functions(graph: GraphDef) -> dict[str, FunctionDef]:
    """The functions of the library, by their names."""
    return {one.signature.name: one for one in graph.library.function}


def reached(known: Mapping[str, FunctionDef], names: Iterable[str]) -> set[str]:
    """Those of the known functions that have these names, or that they call."""
    found: set[str] = set()
    left = [*names]
    while left:
        name = left.pop()
        if name in known and name not in found:
            found.add(name)
            for node in known[name].node_def:
                left += callees(node)
    return found


def callees(node: NodeDef) -> list[str]:
    """The functions that a node calls, of which its op may be one."""
    return [node.op, *called(node)]


def unique_name(base: str, taken: Sequence[str] | set[str]) -> str:
    name, number = base, 1
    while name in taken:
        name, number = f"{base}_{number}", number + 1
    return name
