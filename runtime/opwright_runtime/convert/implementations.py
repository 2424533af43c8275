"""Layers of tf_keras, which are functions with one implementation for each device.

TensorFlow runs the function for CPUs, a loop. The library of the graph also has a
function for GPUs with the op of cuDNN, and both have the attr `api_implements`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from opwright_runtime import native
from opwright_runtime.convert import graphs, reach, saved_models
from opwright_runtime.convert.graphs import GraphDef, NodeDef
from opwright_runtime.convert.layers import KERAS, OPS, Shape
from opwright_runtime.convert.plain import Function
from opwright_runtime.convert.rewrite import (
    CALLS,
    Found,
    Replacement,
    replace_calls,
    signature_of,
)
from opwright_runtime.convert.saved_models import SavedModel
from opwright_runtime.rnn.masked_steps import Steps
from opwright_runtime.rnn.packed import RnnMode
from opwright_runtime.rnn.plain_cells import Tensor

_API = "api_implements"
# The name of the node in a function that takes the place of a layer.
_NODE = "layer_of_tf_keras"
_CELLS: Mapping[str, RnnMode] = {"lstm": "lstm", "gru": "gru"}
# The unknown sizes of the arguments that a function is tried on.
_BATCH, _TIME = 5, 4
# The most numbers in the arguments of a function that is tried.
_LARGEST = 1 << 27
_CLOSE = {tf.float32: 1e-5, tf.float64: 1e-5, tf.float16: 2e-2, tf.bfloat16: 1e-1}


def without_unused(model: SavedModel) -> int:
    """Removes the functions with recurrent ops that nothing calls, in place.

    TensorFlow may choose them by their attrs on a GPU. Without them, it runs the
    functions that the nodes name.

    Returns:
        How many functions implemented a layer.
    """
    removed = 0
    for meta in model.meta_graphs:
        library = meta.graph_def.library
        used = reach.of_library(meta)
        with_ops = _with_ops(meta.graph_def)
        gone = with_ops - used
        removed += sum(
            one.signature.name in gone and _API in one.attr for one in library.function
        )
        kept = [one for one in library.function if one.signature.name not in gone]
        if gone:
            copies = [type(one).FromString(one.SerializeToString()) for one in kept]
            del library.function[:]
            library.function.extend(copies)
    return removed


def _with_ops(graph: GraphDef) -> set[str]:
    """The functions with recurrent ops, and all that call them."""
    functions = [body for body in graphs.bodies(graph) if body.function is not None]
    calls = {
        body.name: {name for node in body.nodes for name in graphs.callees(node)}
        for body in functions
    }
    found = {body.name for body in functions if any(n.op in OPS for n in body.nodes)}
    while more := {name for name, used in calls.items() if used & found} - found:
        found |= more
    return found


def with_nodes(folder: Path, signature: str | None, target: Path) -> Path:
    """The SavedModel itself, or one in `target` with a node for each such layer.

    Args:
        folder: of the SavedModel.
        signature: whose layers become nodes.
        target: the folder of the new SavedModel.
    """
    if not native.loaded():
        return folder
    model = saved_models.read(folder)
    called = {
        node.attr["f"].func.name
        for node in reach.of_signature(model, signature).values()
        if node.op in CALLS
    }
    count = 0
    for meta in model.meta_graphs:
        known = _recognized(meta.graph_def, called)
        if known:
            count += len(replace_calls(meta.graph_def, frozenset(known), _By(known)))
    if not count:
        return folder
    saved_models.write(model, folder, target)
    return target


def notes(nodes: Sequence[Found]) -> list[str]:
    """What a report says about nodes of opwright, some of which were such layers."""
    loops = sum(_NODE in one.node for one in nodes)
    others = len(nodes) - loops
    found = [f"{others} nodes were {KERAS}"] if others else []
    return found + ([f"{loops} layers were loops of tf_keras"] if loops else [])


@dataclass(frozen=True)
class _Form:
    """What a function computes.

    Attributes:
        mode: of its cell.
        dtype: of its sequences.
        masked: whether its last argument is a mask.
        time_major: whether the first dimension of sequences is time.
        backwards: whether it begins with the last step.
        zeros: whether a masked step outputs zeros, and not what the step before does.
        every: whether it returns the outputs of all steps.
        shapes: of its arguments, as it declares them.
    """

    mode: RnnMode
    dtype: tf.DType
    masked: bool
    time_major: bool
    backwards: bool
    zeros: bool
    every: bool
    shapes: tuple[Shape, ...]

    @property
    def sizes(self) -> tuple[int, int] | None:
        """The inputs and units of the layer; None if they are not declared."""
        first = 3 if self.mode == "lstm" else 2
        kernel, recurrent = self.shapes[first : first + 2]
        if kernel is None or recurrent is None or len(kernel) != 2:
            return None
        inputs, units = kernel[0], recurrent[0]
        return None if not inputs or not units else (inputs, units)

    def function(self) -> Function:
        """The layer with one node."""
        lstm = self.mode == "lstm"

        def layer(x: Tensor, *given: Tensor) -> list[Tensor]:
            states = given[: 1 + lstm]
            kernel, recurrent, bias, *mask = given[1 + lstm :]
            x = _oriented(self, x)
            batch, time = tf.unstack(tf.shape(x)[:2])
            steps = None
            if mask:
                shown = _oriented(self, tf.reshape(mask[0], tf.shape(mask[0])[:2]))
                steps = Steps(shown, self.zeros, search=False)
            lengths = tf.fill([batch], time) if steps is None else steps.lengths
            y, h, c = native.ops().opwright_keras_rnn(
                input=x if steps is None else steps.to_front(x),
                input_h=states[0],
                input_c=states[-1],
                kernel=kernel,
                recurrent_kernel=recurrent,
                bias=tf.reshape(bias, [-1, bias.shape[-1]]),
                sequence_lengths=lengths,
                rnn_mode=self.mode,
                name=_NODE,
            )
            last = h if steps is None else steps.last(h)
            if not self.every:
                y = tf.expand_dims(last, 1)
            elif steps is not None:
                y = steps.back(y)
            y = tf.transpose(y, [1, 0, 2]) if self.time_major else y
            # The last output says which implementation has run.
            return [last, y, h, *([c] if lstm else []), tf.constant(1.0)]

        return layer


def _oriented(form: _Form, x: Tensor) -> Tensor:
    """Batch-major, in the order in which the layer runs the steps."""
    if form.time_major:
        x = tf.transpose(x, [1, 0, *range(2, x.shape.rank)])
    return tf.reverse(x, [1]) if form.backwards else x


class _By:
    """Replaces calls of recognized functions."""

    def __init__(self, known: Mapping[str, _Form]) -> None:
        self._known = known

    def __call__(
        self, node: NodeDef, dtypes: Sequence[tf.DType], shapes: Sequence[Shape]
    ) -> Replacement | None:
        form = self._known[node.attr["f"].func.name]
        sizes = form.sizes
        sequence, state = shapes[:2]
        if (
            sizes is None
            or not sequence
            or not state
            or None in (sequence[-1], state[-1])
        ):
            # A node needs the sizes, and the loop does not.
            return None
        known = [
            declared if given is None else given
            for given, declared in zip(shapes, form.shapes, strict=True)
        ]
        # The bias tells by its shape whether it has a row for each product.
        at = len(known) - 1 - form.masked
        known[at] = form.shapes[at]
        return Replacement(
            form,
            form.function(),
            signature_of(known, dtypes),
            f"{form.mode}, {sizes[1]} units",
            KERAS,
            form.dtype.name,
        )


def _recognized(graph: GraphDef, called: set[str]) -> dict[str, _Form]:
    """Those of the functions that compute what a node can, by their names."""
    found = {}
    for function in graph.library.function:
        name = function.signature.name
        device = (
            function.attr["api_preferred_device"].s if _API in function.attr else b""
        )
        if device != b"CPU" or name not in called:
            continue
        form = _form_of(graph, function)
        if form is not None:
            found[name] = form
    return found


def _form_of(graph: GraphDef, function: Any) -> _Form | None:
    """The form of RNN that a function computes, or None.

    Its signature must have the form's inputs. Its results on drawn inputs must equal
    those of the form.
    """
    mode = _CELLS.get(
        function.attr[_API].s.partition(b"_")[0].decode("utf-8", "replace")
    )
    dtypes = [tf.as_dtype(one.type) for one in function.signature.input_arg]
    shapes = graphs.declared(function)
    count = 6 if mode == "lstm" else 5
    outputs = len(function.signature.output_arg)
    masked = len(dtypes) == count + 1 and dtypes[-1] == tf.bool
    if mode is None or outputs != count - 1 or len(dtypes) != count + masked:
        return None
    if len({*dtypes[:count]}) != 1 or dtypes[0] not in _CLOSE:
        return None
    options = _stated(function, "time_major"), _stated(function, "go_backwards")
    for time_major, backwards in itertools.product(*options):
        form = _Form(
            mode, dtypes[0], masked, time_major, backwards, False, True, (*shapes,)
        )
        if form.sizes is None or not _fits(shapes):
            return None
        try:
            found = _tried(graph, function, form, dtypes)
        except Exception:
            # A function of another form fails with errors of any class. It stays.
            continue
        if found is not None:
            return found
    return None


def _stated(function: Any, name: str) -> tuple[bool, ...]:
    """The value of an attr, which functions of old versions lack."""
    value = function.attr.get(name)
    return (False, True) if value is None else (value.b,)


def _fits(shapes: Sequence[Shape]) -> bool:
    """Whether arguments of these shapes are small enough to try."""
    known = [shape for shape in shapes if shape is not None]
    counts = [math.prod(size or _BATCH for size in shape) for shape in known]
    return len(known) == len(shapes) and sum(counts) <= _LARGEST


def _tried(
    graph: GraphDef, function: Any, form: _Form, dtypes: Sequence[tf.DType]
) -> _Form | None:
    """The form that gives the numbers of the function; None if none does."""
    values = _values(form, dtypes)
    wanted = _run(graph, function.signature, values)
    time = values[0].shape[0 if form.time_major else 1]
    steps = wanted[1].shape[0 if form.time_major else 1]
    for zeros in (False, True) if form.masked else (False,):
        every = steps == time
        one = replace(form, zeros=zeros, every=every)
        # Outside of the graph of the caller, if there is one.
        with tf.init_scope():
            found = one.function()(*map(tf.constant, values))
        close = _CLOSE[form.dtype]
        if all(
            a.shape == b.shape
            and np.allclose(a.astype("float64"), tf.cast(b, tf.float64), atol=close)
            for a, b in zip(wanted[:-1], found[:-1], strict=True)
        ):
            return one
    return None


def _values(form: _Form, dtypes: Sequence[tf.DType]) -> list[Any]:
    """Arguments that tell all forms apart."""
    assert form.sizes is not None
    inputs, units = form.sizes
    rng = np.random.default_rng(0)
    batch, time = (1, 0) if form.time_major else (0, 1)
    known = form.shapes[0] or (None, None, None)
    sizes = [0, 0]
    sizes[batch] = known[batch] or _BATCH
    sizes[time] = known[time] or _TIME
    states = [(sizes[batch], units)] * (2 if form.mode == "lstm" else 1)
    weights = form.shapes[1 + len(states) : 4 + len(states)]
    known_weights = [tuple(size or 1 for size in shape or ()) for shape in weights]
    shapes: list[tuple[int, ...]] = [(*sizes, inputs), *states, *known_weights]
    values = [
        tf.cast(rng.uniform(-1, 1, shape) / max(1, (shape[0] if i else 1)) ** 0.5, one)
        for i, (shape, one) in enumerate(zip(shapes, dtypes, strict=False))
    ]
    found = [value.numpy() for value in values]
    if form.masked:
        # The masks begin, end and go on with masked steps.
        mask = rng.random((sizes[batch], sizes[time])) < 0.5
        mask[0] = True
        mask[-1, -1] = False
        found.append(mask.T if form.time_major else mask)
    return found


def _run(graph: GraphDef, signature: Any, values: Sequence[Any]) -> list[Any]:
    """Calls a function, without the implementations for other devices."""
    made = tf.compat.v1.GraphDef(versions=graph.versions)
    made.library.CopyFrom(graphs.library_of(graph, signature.name))
    call = made.node.add(name="call", op="StatefulPartitionedCall")
    call.attr["f"].func.name = signature.name
    for i, argument in enumerate(signature.input_arg):
        node = made.node.add(name=f"x{i}", op="Placeholder")
        node.attr["dtype"].type = argument.type
        call.input.append(node.name)
    call.attr["Tin"].list.type.extend(one.type for one in signature.input_arg)
    call.attr["Tout"].list.type.extend(one.type for one in signature.output_arg)
    with tf.Graph().as_default() as built:
        tf.graph_util.import_graph_def(made, name="")
        config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
        with tf.compat.v1.Session(graph=built, config=config) as session:
            names = [f"call:{i}" for i in range(len(signature.output_arg))]
            fed = {f"x{i}:0": value for i, value in enumerate(values)}
            found: list[Any] = session.run(names, fed)
    return found
