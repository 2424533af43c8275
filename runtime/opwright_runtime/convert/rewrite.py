"""Replaces nodes of a graph by calls of functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeAlias

import tensorflow as tf

from opwright_runtime.convert import graphs
from opwright_runtime.convert.errors import ConvertError, refusal
from opwright_runtime.convert.graphs import Body, FunctionDef, GraphDef, NodeDef, Shapes
from opwright_runtime.convert.layers import BACKWARD, FORWARD, Shape

CALLS: Final = ("PartitionedCall", "StatefulPartitionedCall")


@dataclass(frozen=True)
class Found:
    """A node that was replaced.

    Attributes:
        node: its name, after that of its function.
        op: its op.
        layers: what it computes.
        became: what is in its place.
        dtype: of its sequences and states.
    """

    node: str
    op: str
    layers: str
    became: str
    dtype: str = "float32"


@dataclass(frozen=True)
class Replacement:
    """A function in place of a node.

    Attributes:
        key: equal for nodes that share the function.
        function: takes the node's inputs, returns all of its outputs.
        signature: the TensorSpecs of the inputs.
        layers: what the node computes, for the report.
        became: what takes its place, for the report.
        dtype: of the node, for the report.
    """

    key: object
    function: Callable[..., Sequence[Any]]
    signature: Sequence[tf.TensorSpec]
    layers: str
    became: str
    dtype: str = "float32"


def signature_of(
    shapes: Sequence[Shape], dtypes: Sequence[tf.DType]
) -> list[tf.TensorSpec]:
    """The TensorSpecs of inputs with these shapes and dtypes."""
    known: list[Any] = [*shapes]
    return [tf.TensorSpec(s, d) for s, d in zip(known, dtypes, strict=True)]


Replace: TypeAlias = Callable[
    [NodeDef, Sequence[tf.DType], Sequence[Shape]], "Replacement | None"
]
"""What takes the place of a node, from the dtypes and shapes of its inputs."""


def replace_nodes(
    graph: GraphDef, ops: frozenset[str], replace: Replace
) -> list[Found]:
    """Replaces nodes of these ops, in all bodies of a graph, in place.

    Raises:
        ConvertError: a node cannot be replaced. The graph is then undefined.
    """
    return _replace_nodes(graph, lambda node: node.op in ops, replace)


def replace_calls(
    graph: GraphDef, functions: frozenset[str], replace: Replace
) -> list[Found]:
    """Replaces calls of these functions, as `replace_nodes` does."""
    return _replace_nodes(
        graph,
        lambda node: node.op in CALLS and node.attr["f"].func.name in functions,
        replace,
    )


def _replace_nodes(
    graph: GraphDef, wanted: Callable[[NodeDef], bool], replace: Replace
) -> list[Found]:
    graphs.require_ops(graph)
    hit = [body for body in graphs.bodies(graph) if any(map(wanted, body.nodes))]
    if not hit:
        return []
    shapes = Shapes(graph, [body.name for body in hit])
    library = _Library(graph)
    found = []
    for body in hit:
        _check_reserves(body, wanted)
        renamed: dict[str, str] = {}
        for node in body.nodes:
            if not wanted(node):
                continue
            made = _replacement(body, node, shapes, replace)
            if made is None:
                continue
            place = body.place(node.name)
            found.append(Found(place, node.op, made.layers, made.became, made.dtype))
            renamed |= _renamed(body, node)
            library.call(node, made)
        _rename(body, renamed)
    return found


def _replacement(
    body: Body, node: NodeDef, shapes: Shapes, replace: Replace
) -> Replacement | None:
    try:
        return replace(node, shapes.dtypes(body, node), shapes.inputs(body, node))
    except ConvertError as error:
        if not error.node or not body.name:
            raise
        raise ConvertError(
            f"in function {body.name!r}: {error}", node=error.node, op=error.op
        ) from error


def _check_reserves(body: Body, wanted: Callable[[NodeDef], bool]) -> None:
    """Refuses a reserve of these nodes that goes elsewhere than into backward nodes.

    It is what one kernel hands to another one; other ops cannot read it.
    """
    ops = {
        node.name: node.op for node in body.nodes if node.op in FORWARD and wanted(node)
    }
    reserves = {
        name
        for node in ops
        for name in (
            f"{node}:3",
            f"{node}:4",
            f"{node}:reserve_space:0",
            f"{node}:host_reserved:0",
        )
    }
    read = {graphs.node_of(name) for node in body.nodes for name in node.input}
    for node in body.nodes:
        # TensorFlow's gradients make zeros like each output, and may leave them unread.
        unread = node.op == "ZerosLike" and node.name not in read
        if node.op not in BACKWARD and not unread and reserves & {*node.input}:
            name = graphs.node_of(min(reserves & {*node.input}))
            raise refusal(
                ops[name],
                body.place(name),
                f"node {node.name!r} ({node.op}) reads its reserve",
                "save the model for inference",
            )
    if body.function is not None and reserves & {*body.function.ret.values()}:
        name = graphs.node_of(min(reserves & {*body.function.ret.values()}))
        raise refusal(
            ops[name],
            body.place(name),
            "its function returns its reserve",
            "save the model for inference",
        )


def _renamed(body: Body, node: NodeDef) -> dict[str, str]:
    """The names of a node's outputs in a function, and those of the call."""
    if body.function is None:
        return {}
    if node.op in CALLS:
        # The new node is a call too.
        return {}
    definition = graphs.op_def(node.op)
    names: dict[str, str] = {}
    for argument in definition.output_arg:
        count = node.attr[argument.number_attr].i if argument.number_attr else 1
        for i in range(count):
            old = f"{node.name}:{argument.name}:{i}"
            names[old] = f"{node.name}:output:{len(names)}"
    return names


def _rename(body: Body, names: dict[str, str]) -> None:
    if not names:
        return
    for node in body.nodes:
        for i, name in enumerate(node.input):
            if name in names:
                node.input[i] = names[name]
    for key, name in body.function.ret.items():
        if name in names:
            body.function.ret[key] = names[name]


@dataclass(frozen=True)
class _Traced:
    """What a function is traced for. Equal ones give the same FunctionDefs.

    Attributes:
        kind: the name of the function's code.
        key: that of its `Replacement`.
        signature: the TensorSpecs of its inputs.
        function: the function.
    """

    kind: str
    key: object
    signature: tuple[tf.TensorSpec, ...]
    function: Callable[..., Sequence[Any]] = field(compare=False)


# A model is often converted several times, and tracing takes most of the time.
@lru_cache(maxsize=64)
def _traced(wanted: _Traced) -> tuple[FunctionDef, ...]:
    """A function, and those that it calls."""
    traced = tf.function(wanted.function, autograph=False).get_concrete_function(
        *wanted.signature
    )
    return traced.function_def, *traced.graph.as_graph_def().library.function


class _Library:
    """The functions that a graph gets."""

    def __init__(self, graph: GraphDef) -> None:
        self._graph = graph
        self._taken = {one.signature.name for one in graph.library.function}
        self._made: dict[object, str] = {}

    def call(self, node: NodeDef, made: Replacement) -> None:
        """Makes a node a call of the function."""
        key = (made.key, tuple(made.signature))
        if key not in self._made:
            self._made[key] = self._add(made)
        name = self._made[key]
        signature = next(
            one.signature
            for one in reversed(self._graph.library.function)
            if one.signature.name == name
        )
        inputs = [*node.input]
        kept = type(node)(name=node.name, input=inputs)
        kept.op = (
            "StatefulPartitionedCall" if signature.is_stateful else ("PartitionedCall")
        )
        kept.attr["f"].func.name = name
        kept.attr["Tin"].list.type.extend(one.type for one in signature.input_arg)
        kept.attr["Tout"].list.type.extend(one.type for one in signature.output_arg)
        for text in ("config", "config_proto", "executor_type"):
            kept.attr[text].s = b""
        node.CopyFrom(kept)

    def _add(self, made: Replacement) -> str:
        function = made.function
        kind = f"{function.__module__}.{function.__qualname__}"
        main, *inner = _traced(_Traced(kind, made.key, (*made.signature,), function))
        names = {
            one.signature.name: graphs.unique_name(
                f"__plain_{one.signature.name.strip('_')}", self._taken
            )
            for one in [main, *inner]
        }
        self._taken |= {*names.values()}
        for one in [main, *inner]:
            copy = self._graph.library.function.add()
            copy.CopyFrom(one)
            copy.signature.name = names[one.signature.name]
            for node in copy.node_def:
                for value in node.attr.values():
                    if value.HasField("func") and value.func.name in names:
                        value.func.name = names[value.func.name]
                    for each in value.list.func if value.HasField("list") else ():
                        each.name = names.get(each.name, each.name)
        return names[main.signature.name]
