"""Prepares flat graphs for converters that know few ops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from opwright_runtime._internals import optimize_graph
from opwright_runtime.convert import graphs, layers
from opwright_runtime.convert.errors import refusal
from opwright_runtime.convert.graphs import Body, GraphDef, Shapes, node_of
from opwright_runtime.convert.layers import BACKWARD, FORWARD, KERAS, Layers, Shape
from opwright_runtime.convert.plain import function_to_cudnn
from opwright_runtime.convert.replacements import specs
from opwright_runtime.convert.rewrite import Found, Replacement, replace_nodes
from opwright_runtime.convert.signatures import Flat

# Parts of the names of ops that may give other results in each run: they read state or
# draw random numbers, for example. What is computed from them becomes no constant.
_MOVING = ("Placeholder", "Random", "Stateful", "While", "If", "Read", "Table", "Cudnn")

# Marks of functions that Grappler does not inline: for XLA, or as their author wishes.
_APART = ("_XlaMustCompile", "_noinline")


def replace_keras(flat: Flat) -> list[Found]:
    """Replaces opwright's op for Keras by CudnnRNNV3, with packed parameters."""

    def replace(
        node: Any, dtypes: Sequence[tf.DType], shapes: Sequence[Shape]
    ) -> Replacement:
        read = layers.read(node, graphs.defaults(node.op), shapes)
        signature = specs(read, dtypes, shapes)
        made = function_to_cudnn(read)
        return Replacement(read, made, signature, str(read), "CudnnRNNV3")

    return replace_nodes(flat.graph, frozenset([KERAS]), replace)


def inline(flat: Flat) -> None:
    """Inlines all calls of functions, in place. Loops and branches stay."""
    _unmark(flat.graph, _APART)
    config = tf.compat.v1.ConfigProto()
    rewriting = config.graph_options.rewrite_options
    rewriting.optimizers.append("function")
    rewriting.min_graph_nodes = -1
    with tf.Graph().as_default():
        meta = tf.compat.v1.train.export_meta_graph(graph_def=flat.graph)
    for tensor in (*flat.inputs.values(), *flat.outputs.values()):
        meta.collection_def["train_op"].node_list.value.append(tensor)
    flat.graph.CopyFrom(optimize_graph(config, meta))
    # A SavedModel does not take this mark of Grappler.
    _unmark(flat.graph, ["_GrapplerSpecializedFunc"])


def _unmark(graph: GraphDef, names: Iterable[str]) -> None:
    """Removes attrs of functions and nodes."""
    for body in graphs.bodies(graph):
        for name in names:
            if body.function is not None:
                body.function.attr.pop(name, None)
            for node in body.nodes:
                node.attr.pop(name, None)


def prune(flat: Flat) -> None:
    """Removes the nodes that no output depends on."""
    by_name = {node.name: node for node in flat.graph.node}
    needed: set[str] = set()
    left = [node_of(one) for one in (*flat.outputs.values(), *flat.inputs.values())]
    while left:
        name = left.pop()
        if name not in needed:
            needed.add(name)
            # A node that is only waited for has no effect on numbers.
            left += [node_of(one) for one in graphs.data_inputs(by_name[name])]
    kept = [node for node in flat.graph.node if node.name in needed]
    for node in kept:
        node.input[:] = graphs.data_inputs(node)
    copies = [type(node).FromString(node.SerializeToString()) for node in kept]
    del flat.graph.node[:]
    flat.graph.node.extend(copies)


def refuse_backward(flat: Flat, runtime: str) -> None:
    """Refuses the nodes of gradients that outputs depend on.

    Raises:
        ConvertError: there is such a node.
    """
    for node in flat.graph.node:
        if node.op in BACKWARD:
            raise refusal(
                node.op,
                node.name,
                f"it computes gradients, and {runtime} has no operator for them",
                "convert a signature that computes none, or use to_plain",
            )


def fold_params(flat: Flat) -> None:
    """Makes constants of the parameters that nothing but constants enter."""
    by_name = {node.name: node for node in flat.graph.node}
    wanted = {
        node.input[3]
        for node in flat.graph.node
        if node.op in FORWARD and by_name[node_of(node.input[3])].op != "Const"
    }
    fixed = sorted(one for one in wanted if _is_fixed(one, by_name))
    if not fixed:
        return
    subgraph = tf.compat.v1.GraphDef(versions=flat.graph.versions)
    subgraph.library.CopyFrom(flat.graph.library)
    needed = set().union(*(_ancestors(one, by_name) for one in fixed))
    subgraph.node.extend(by_name[name] for name in sorted(needed))
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(subgraph, name="")
        with tf.compat.v1.Session(graph=graph) as session:
            names = [one if ":" in one else f"{one}:0" for one in fixed]
            values = session.run(names)
    names_of: dict[str, str] = {}
    for tensor, value in zip(fixed, values, strict=True):
        name = graphs.unique_name("params", {*by_name, *names_of.values()})
        node = flat.graph.node.add(name=name, op="Const")
        node.attr["dtype"].type = tf.as_dtype(value.dtype).as_datatype_enum
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
        names_of[tensor] = name
    for node in flat.graph.node:
        if node.op in FORWARD:
            node.input[3] = names_of.get(node.input[3], node.input[3])


def _ancestors(tensor: str, by_name: dict[str, Any]) -> set[str]:
    found: set[str] = set()
    left = [node_of(tensor)]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += [node_of(one) for one in by_name[name].input]
    return found


def _is_fixed(tensor: str, by_name: dict[str, Any]) -> bool:
    ops = {by_name[name].op for name in _ancestors(tensor, by_name)}
    return not any(part in op for op in ops for part in _MOVING)


def label(flat: Flat) -> dict[str, tuple[str, Layers]]:
    """Gives each forward node a name of its own, in all bodies.

    Returns:
        For each new name, the old name and what the node computes.
    """
    hit = [
        body
        for body in graphs.bodies(flat.graph)
        if any(node.op in FORWARD for node in body.nodes)
    ]
    if not hit:
        return {}
    shapes = Shapes(flat.graph, [body.name for body in hit])
    found: dict[str, tuple[str, Layers]] = {}
    for body in hit:
        renamed = {}
        for node in body.nodes:
            if node.op in FORWARD:
                read = layers.read(
                    node,
                    graphs.defaults(node.op),
                    shapes.inputs(body, node),
                )
                name = f"opwright_rnn_{len(found)}"
                found[name] = body.place(node.name), read
                renamed[node.name] = name
        _rename_nodes(body, renamed)
    return found


def _rename_nodes(body: Body, renamed: dict[str, str]) -> None:
    def new(name: str) -> str:
        node = node_of(name)
        at = name.find(node)
        return name[:at] + renamed.get(node, node) + name[at + len(node) :]

    for node in body.nodes:
        node.name = renamed.get(node.name, node.name)
        node.input[:] = [new(name) for name in node.input]
    if body.function is not None:
        for returned in (body.function.ret, body.function.control_ret):
            for key, name in returned.items():
                returned[key] = new(name)
