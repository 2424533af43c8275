"""The nodes of a SavedModel that run when its signatures are called.

A SavedModel also has functions for gradients and for saving, which run at other times.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from opwright_runtime.convert import graphs
from opwright_runtime.convert.graphs import NodeDef, node_of

SavedModel: TypeAlias = Any

# The loader calls them, and they are no signatures of the user.
_OF_THE_LOADER = ("__saved_model_init_op", "__saved_model_train_op")
_DEFAULT = "serving_default"


def of_all(model: SavedModel) -> dict[str, NodeDef]:
    """All nodes by their places."""
    return {
        body.place(node.name): node
        for meta in model.meta_graphs
        for body in graphs.bodies(meta.graph_def)
        for node in body.nodes
    }


def of_signature(model: SavedModel, name: str | None) -> dict[str, NodeDef]:
    """The nodes of the signature that is converted to one graph, by their places."""
    found: dict[str, NodeDef] = {}
    for meta in model.meta_graphs:
        known = _signatures(meta)
        chosen = name or (_DEFAULT if _DEFAULT in known else None)
        found |= _nodes(meta, [chosen] if chosen in known else known)
    return found


def of_signatures(model: SavedModel) -> dict[str, NodeDef]:
    """The nodes of all signatures, by their places; all nodes if there are none."""
    if not any(_signatures(meta) for meta in model.meta_graphs):
        return of_all(model)
    found: dict[str, NodeDef] = {}
    for meta in model.meta_graphs:
        found |= _nodes(meta, _signatures(meta))
    return found


def of_library(meta: Any) -> set[str]:
    """The functions that a loaded model can run, also for its gradients."""
    graph, objects = meta.graph_def, meta.object_graph_def
    names = [*objects.concrete_functions]
    names += [one.gradient_func for one in graph.library.gradient]
    names += [one.gradient_func for one in graph.library.registered_gradients]
    for node in graph.node:
        names += graphs.callees(node)
    for one in objects.nodes:
        names += one.function.concrete_functions
        names.append(one.bare_concrete_function.concrete_function_name)
    return graphs.reached(graphs.functions(graph), names)


def _signatures(meta: Any) -> list[str]:
    return [name for name in meta.signature_def if name not in _OF_THE_LOADER]


def _nodes(meta: Any, names: Iterable[str]) -> dict[str, NodeDef]:
    bodies = {body.name: body for body in graphs.bodies(meta.graph_def)}
    main = {node.name: node for node in bodies[""].nodes}
    outputs = [
        tensor
        for name in names
        for info in meta.signature_def[name].outputs.values()
        for tensor in _tensors(info)
    ]
    found: dict[str, NodeDef] = {}
    called: list[str] = []
    left = [node_of(one) for one in outputs]
    while left:
        name = left.pop()
        if name in main and name not in found:
            found[name] = main[name]
            left += [node_of(one) for one in main[name].input]
            called += graphs.callees(main[name])
    entered = graphs.reached(graphs.functions(meta.graph_def), called)
    for body in bodies.values():
        if body.name in entered:
            found |= {body.place(node.name): node for node in body.nodes}
    return found


def _tensors(info: Any) -> list[str]:
    """The names of the tensors of an output, which may be sparse or composite."""
    kind = info.WhichOneof("encoding")
    if kind == "coo_sparse":
        sparse = info.coo_sparse
        parts = sparse.values_tensor_name, sparse.indices_tensor_name
        return [*parts, sparse.dense_shape_tensor_name]
    if kind == "composite_tensor":
        return [
            one for part in info.composite_tensor.components for one in _tensors(part)
        ]
    return [info.name]
