"""Removes assignments to variables that no output depends on.

Keras counts the random numbers of its dropout layers in a variable, also in inference.
Other runtimes have no variables, so the assignment to such a counter must be removed
before a graph is frozen.
"""

from __future__ import annotations

from pathlib import Path

from opwright_runtime.convert import graphs, saved_models
from opwright_runtime.convert.errors import refusal
from opwright_runtime.convert.graphs import Body, data_inputs, node_of

_ASSIGN = frozenset(("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"))


def without_assignments(folder: Path, target: Path) -> Path:
    """The SavedModel itself, or one in `target` without assignments.

    Raises:
        ConvertError: an output depends on a variable that the model assigns.
    """
    message = saved_models.read(folder)
    changed = False
    for meta in message.meta_graphs:
        for body in graphs.bodies(meta.graph_def):
            # The main graph has the assignments that restore a checkpoint.
            if body.function is not None and "restore" not in body.name:
                changed |= _remove(body)
    if not changed:
        return folder
    saved_models.write(message, folder, target)
    return target


def _remove(body: Body) -> bool:
    assigns = {node.name: node for node in body.nodes if node.op in _ASSIGN}
    if not assigns:
        return False
    live = _live(body)
    for node in assigns.values():
        readers = [
            other
            for other in body.nodes
            if other.name in live and node.input[:1] == other.input[:1]
        ]
        if readers and not all(other.op in _ASSIGN for other in readers):
            raise refusal(
                node.op,
                body.place(node.name),
                "it keeps a state from call to call, which the outputs depend on",
                "make states inputs and outputs of the model, or use to_plain",
            )
    kept = [node for node in body.nodes if node.name not in assigns]
    copies = [type(node).FromString(node.SerializeToString()) for node in kept]
    for node in copies:
        node.input[:] = [
            name
            for name in node.input
            if not (name.startswith("^") and node_of(name) in assigns)
        ]
    del body.nodes[:]
    body.nodes.extend(copies)
    _remove_control(body, set(assigns))
    return True


def _remove_control(body: Body, names: set[str]) -> None:
    gone = {
        key for key, name in body.function.control_ret.items() if node_of(name) in names
    }
    for key in gone:
        del body.function.control_ret[key]
    listed = body.function.signature.control_output
    listed[:] = [key for key in listed if key not in gone]


def _live(body: Body) -> set[str]:
    """The nodes that the results of a function are computed from."""
    by_name = {node.name: node for node in body.nodes}
    found: set[str] = set()
    left = [node_of(name) for name in body.function.ret.values()]
    while left:
        name = left.pop()
        if name in by_name and name not in found:
            found.add(name)
            left += [node_of(one) for one in data_inputs(by_name[name])]
    return found
