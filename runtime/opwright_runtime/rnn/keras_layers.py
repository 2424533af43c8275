"""Keras 3's recurrent layers on opwright's kernels: `opwright.keras`.

Each layer is a subclass of Keras's layer. It replaces only the inner loop, in the place
where Keras calls cuDNN. Arguments, weights, states, dropout and files are those of
Keras. If the kernels cannot run a layer or a call, Keras's own loop runs it.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from opwright_runtime import native
from opwright_runtime._binding import gradients
from opwright_runtime.rnn.converters import converting
from opwright_runtime.rnn.masked_steps import Steps, add_zeros
from opwright_runtime.rnn.packed import GATES, RnnMode, Sizes
from opwright_runtime.rnn.plain_cells import keras_weights, zero_past
from opwright_runtime.rnn.plain_loops import LOOPS

__all__ = ["GRU", "LSTM", "SimpleRNN"]

# Keras has no types.
KerasObject: TypeAlias = Any
_Tensor: TypeAlias = Any
# The last output, all outputs, and the final states.
_Outputs: TypeAlias = tuple[_Tensor, _Tensor, list[_Tensor]]
# Takes the mode, lengths, inputs, weights and states.
_Kernel: TypeAlias = Callable[..., list[_Tensor]]

_TANH = (keras.activations.tanh, keras.ops.tanh, tf.tanh)
_SIGMOID = (keras.activations.sigmoid, keras.ops.sigmoid, tf.sigmoid)
_RELU = (keras.activations.relu, keras.ops.relu, tf.nn.relu)
_EXPORT = inspect.unwrap(keras.Model.export).__code__
_DTYPES = ("float16", "bfloat16", "float32", "float64")

# Each call has a fixed cost: a training call packs the weights, and an inference call
# hashes them to find packed ones in the cache. The kernels are faster only for
# sequences of more steps than this: _FIXED_STEPS steps, plus one step for each
# _WEIGHTS_PER_STEP weights. The key says whether the call trains.
_FIXED_STEPS = 4
_WEIGHTS_PER_STEP = {False: 1 << 20, True: 1 << 19}
# Whether calls of few steps use the kernels too. Each thread has its own value.
_any_steps: ContextVar[bool] = ContextVar("opwright_any_steps", default=False)


class _KernelLayer:
    """The common part of the layers.

    It comes before Keras's class in their bases, so that its methods override Keras's.
    """

    built: bool
    cell: KerasObject
    go_backwards: bool
    return_sequences: bool
    use_cudnn: bool | str = "auto"
    zero_output_for_mask: bool

    def get_config(self) -> dict[str, Any]:
        """Adds arguments that Keras's method leaves out, unless they are defaults."""
        base: KerasObject = super()
        left_out = {
            "implementation": (getattr(self.cell, "implementation", 2), 2),
            "seed": (getattr(self.cell, "seed", None), None),
            "use_cudnn": (self.use_cudnn, "auto"),
        }
        given = {
            name: value for name, (value, usual) in left_out.items() if value != usual
        }
        return {**given, **base.get_config()}

    def inner_loop(
        self,
        sequences: _Tensor,
        initial_state: list[_Tensor],
        mask: _Tensor,
        training: bool = False,
    ) -> _Outputs:
        if isinstance(mask, (list, tuple)):
            mask = mask[0]
        mode = self._kernel_mode()
        runtime = converting(_EXPORT)
        if (
            mode is None
            or not _is_supported(mode, self.cell, sequences, initial_state, mask)
            or not (runtime or _is_faster(self.cell, sequences.shape[1], training))
            or runtime == "other"
        ):
            base: KerasObject = super()
            outputs: _Outputs = base.inner_loop(
                sequences, initial_state, mask, training=training
            )
            return outputs
        x = tf.cast(sequences, self.cell.compute_dtype)
        if training and self.cell.dropout:
            x *= tf.expand_dims(self.cell.get_dropout_mask(sequences[:, 0, :]), 1)
        if self.go_backwards:
            x = tf.reverse(x, [1])
        run = _train if training else _infer
        if runtime == "tflite":
            run = _in_tflite
        batch, time = x.shape[:2]
        if batch is None or time is None:
            batch, time = tf.unstack(tf.shape(x)[:2])
        states = [
            _of_batch(state, f"initial_state[{place}]", batch, self.cell.units)
            for place, state in enumerate(initial_state)
        ]
        if mask is None:
            lengths = tf.fill([batch], time)
            y, states = _run(run, mode, self.cell, x, states, lengths)
            last = states[0]
        else:
            mask = tf.broadcast_to(tf.cast(mask, tf.bool), [batch, time])
            mask = tf.reverse(mask, [1]) if self.go_backwards else mask
            steps = Steps(mask, self.zero_output_for_mask, search=runtime is None)
            x, lengths = steps.to_front(x), steps.lengths
            y, states = _run(run, mode, self.cell, x, states, lengths)
            last = steps.last(states[0])
            y = steps.back(y) if self.return_sequences else y
        return last, y if self.return_sequences else tf.expand_dims(last, 1), states

    def _kernel_mode(self) -> RnnMode | None:
        """The kernels' mode for this layer; None if Keras's loop has to run it."""
        if self._unsupported() is not None or not _kernels_available():
            return None
        return _mode(self.cell)

    def _unsupported(self) -> str | None:
        """Why the kernels cannot run this layer; None if they can."""
        cell = self.cell
        # Implementation 1 has a dropout mask for each gate.
        per_gate = cell.dropout and getattr(cell, "implementation", 2) == 1
        reasons = {
            "use_cudnn is False": not self.use_cudnn,
            "recurrent_dropout is not 0": cell.recurrent_dropout,
            "dropout is 1": cell.dropout >= 1,
            "dropout with implementation=1": per_gate,
            f"its dtype is {cell.compute_dtype}": cell.compute_dtype not in _DTYPES,
        }
        reason = next((why for why, holds in reasons.items() if holds), None)
        return reason or _why_no_mode(cell)


def _of_batch(state: _Tensor, name: str, batch: int | _Tensor, units: int) -> _Tensor:
    """A state, shape [batch, units]; one of batch 1 is that of each sample.

    Raises:
        ValueError: the state has another shape.
    """
    shape = tf.TensorShape(state.shape)
    if shape == [batch, units]:
        return state
    known = batch if isinstance(batch, int) else None
    if not any(shape.is_compatible_with([size, units]) for size in (known, 1)):
        size = "batch" if known is None else known
        raise ValueError(
            f"{name} must have the shape ({size}, {units}): batch and units, "
            f"not {shape}"
        )
    return tf.broadcast_to(state, [batch, units])


def why_keras_loop(layer: KerasObject, steps: int | None, training: bool) -> str | None:
    """Why Keras's own loop runs a recurrent layer; None if the kernels run it.

    Args:
        layer: a `keras.layers.RNN`, or a subclass, of Keras or of opwright.
        steps: the length of the sequences; None if any.
        training: whether the call trains.
    """
    if not isinstance(layer, (_KernelLayer, *REPLACEMENTS)):
        cells = getattr(layer.cell, "cells", [layer.cell])
        names = ", ".join(type(one).__name__ for one in cells)
        return (
            f"its class is {type(layer).__name__}, of {names}; the kernels run LSTM, "
            "GRU and SimpleRNN of opwright.keras, one layer for each cell"
        )
    if not isinstance(layer, _KernelLayer):
        return "it is a layer of Keras; opwright.keras.on_kernels(model) replaces it"
    reason = layer._unsupported()
    if reason is not None:
        return reason
    if not _kernels_available():
        return "the kernels are not available, or there is a GPU"
    if layer.built and not _is_faster(layer.cell, steps, training):
        return f"for {steps} steps Keras's loop is faster"
    return None


_register = keras.saving.register_keras_serializable("opwright")


@_register
class LSTM(_KernelLayer, keras.layers.LSTM):  # type: ignore[misc]
    """`keras.layers.LSTM` on opwright's kernels, with the same arguments.

    Keras's own loop runs layers that the kernels do not support, such as those with
    other activations than tanh and sigmoid, `recurrent_dropout` or `use_cudnn=False`.
    It also runs calls of few steps, because it is faster for these.
    """

    __module__ = "opwright.keras"


@_register
class GRU(_KernelLayer, keras.layers.GRU):  # type: ignore[misc]
    """`keras.layers.GRU` on opwright's kernels, with the same arguments.

    Keras's own loop runs layers that the kernels do not support, such as those with
    other activations than tanh and sigmoid, `reset_after=False`, `recurrent_dropout` or
    `use_cudnn=False`. It also runs calls of few steps, because it is faster for these.
    """

    __module__ = "opwright.keras"


@_register
class SimpleRNN(_KernelLayer, keras.layers.SimpleRNN):  # type: ignore[misc]
    """`keras.layers.SimpleRNN` on opwright's kernels, with the same arguments.

    Keras's own loop runs layers that the kernels do not support, such as those with
    other activations than tanh and relu, `recurrent_dropout` or `use_cudnn=False`. It
    also runs calls of few steps, because it is faster for these.

    Args:
        use_cudnn: "auto", True or False, as `keras.layers.LSTM` has it.
    """

    __module__ = "opwright.keras"

    def __init__(
        self, *given: Any, use_cudnn: bool | str = "auto", **named: Any
    ) -> None:
        if use_cudnn not in ("auto", True, False):
            raise ValueError(
                "SimpleRNN: use_cudnn must be 'auto', True or False, "
                f"not {use_cudnn!r}"
            )
        super().__init__(*given, **named)
        self.use_cudnn = use_cudnn


# The layer here for each of Keras's.
REPLACEMENTS: dict[KerasObject, KerasObject] = {
    keras.layers.LSTM: LSTM,
    keras.layers.GRU: GRU,
    keras.layers.SimpleRNN: SimpleRNN,
}


@contextmanager
def kernels_for_any_steps() -> Iterator[None]:
    """A context in which calls of few steps use the kernels too, in this thread.

    A graph that is traced in the context has one op for each layer.
    """
    token = _any_steps.set(True)
    try:
        yield
    finally:
        _any_steps.reset(token)


@cache
def _kernels_available() -> bool:
    """Whether the kernels run the layers of this process.

    Warns if the library or Keras's backend prevents it. With a GPU the answer is False
    without a warning, because Keras then uses cuDNN itself.
    """
    try:
        if keras.backend.backend() != "tensorflow":
            raise native.NativeLibraryError(
                f"Keras's backend is {keras.backend.backend()}; set KERAS_BACKEND to "
                "tensorflow in the environment"
            )
        native.load()
        gradients.explain_on_tapes()
    except native.NativeLibraryError as error:
        text = f"the layers of opwright.keras run Keras's own implementation: {error}"
        warnings.warn(text, stacklevel=2)
        return False
    return not tf.config.list_logical_devices("GPU")


def _mode(cell: KerasObject) -> RnnMode | None:
    """The mode of the ops for a cell; None if they have no such cell."""
    kind, activation = type(cell), cell.activation
    if kind is keras.layers.SimpleRNNCell:
        if activation in _TANH:
            return "rnn_tanh"
        return "rnn_relu" if activation in _RELU else None
    if kind not in (keras.layers.LSTMCell, keras.layers.GRUCell):
        return None
    if activation not in _TANH or cell.recurrent_activation not in _SIGMOID:
        return None
    if kind is keras.layers.LSTMCell:
        return "lstm"
    return "gru" if cell.reset_after else None


def _why_no_mode(cell: KerasObject) -> str | None:
    """Why the ops have no such cell; None if they have one."""
    if _mode(cell) is not None:
        return None
    kind = type(cell)
    if kind is keras.layers.SimpleRNNCell:
        name = _name(cell.activation)
        return f"its activation is {name}; the kernels have tanh and relu"
    if kind not in (keras.layers.LSTMCell, keras.layers.GRUCell):
        return f"its cell is of the class {kind.__name__}"
    if cell.activation not in _TANH:
        return f"its activation is {_name(cell.activation)}; the kernels have tanh"
    if cell.recurrent_activation not in _SIGMOID:
        name = _name(cell.recurrent_activation)
        return f"its recurrent_activation is {name}; the kernels have sigmoid"
    return "reset_after is False"


def _name(function: KerasObject) -> str:
    return str(getattr(function, "__name__", function))


def _is_supported(
    mode: RnnMode, cell: KerasObject, x: _Tensor, states: list[_Tensor], mask: _Tensor
) -> bool:
    """Whether the op accepts these inputs. Keras's loop refuses wrong ones."""
    sizes = x.shape[2] == cell.kernel.shape[0] > 0
    counts = len(states) == (2 if mode == "lstm" else 1)
    masked = mask is None or tf.TensorShape(x.shape[:2]).is_compatible_with(mask.shape)
    return sizes and counts and masked


def _is_faster(cell: KerasObject, steps: int | None, training: bool) -> bool:
    """Whether a call of so many steps is faster on the kernels."""
    if _any_steps.get():
        return True
    weights = math.prod(cell.kernel.shape) + math.prod(cell.recurrent_kernel.shape)
    per_step = _WEIGHTS_PER_STEP[bool(training)]
    return steps is None or weights <= (steps - _FIXED_STEPS) * per_step


def _run(
    run: _Kernel,
    mode: RnnMode,
    cell: KerasObject,
    x: _Tensor,
    states: list[_Tensor],
    lengths: _Tensor,
) -> tuple[_Tensor, list[_Tensor]]:
    """Returns all outputs of a cell, zero past the lengths, and the final states."""

    def read(variable: KerasObject) -> _Tensor:
        return keras.ops.convert_to_tensor(variable, cell.compute_dtype)

    # Keras may return a variable of TensorFlow without conversion.
    kernel = tf.convert_to_tensor(read(cell.kernel))
    recurrent = tf.convert_to_tensor(read(cell.recurrent_kernel))
    rows = GATES[mode] * cell.units
    if cell.bias is None:
        bias = tf.zeros([0, rows], kernel.dtype)
    else:
        bias = tf.reshape(read(cell.bias), [-1, rows])
    y, *states = run(mode, lengths, x, kernel, recurrent, bias, *states)
    return y, states


def _infer(mode: RnnMode, lengths: _Tensor, *inputs: _Tensor) -> list[_Tensor]:
    """Like `_train`, but saves nothing for the backward pass.

    If a gradient is requested, its function runs `_train` again.
    """

    def infer(*inputs: _Tensor) -> _Tensor:
        def gradient(*upstream: _Tensor) -> _Tensor:
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                outputs = _train(mode, lengths, *inputs)
            return tape.gradient(outputs, [*inputs], [*upstream])

        x, kernel, recurrent, bias, *states = inputs
        outputs = native.ops().opwright_keras_rnn(
            input=x,
            input_h=states[0],
            input_c=states[-1],
            kernel=kernel,
            recurrent_kernel=recurrent,
            bias=bias,
            sequence_lengths=lengths,
            rnn_mode=mode,
        )
        return outputs[: 1 + len(states)], gradient

    return [*tf.custom_gradient(infer)(*inputs)]


def _train(
    mode: RnnMode,
    lengths: _Tensor,
    x: _Tensor,
    kernel: _Tensor,
    recurrent: _Tensor,
    bias: _Tensor,
    *states: _Tensor,
) -> list[_Tensor]:
    """Returns all outputs, then the final states, from Keras's weights."""
    operands = [x, lengths, *(tf.expand_dims(state, 1) for state in states)]
    # The op requires at least one sequence, so an empty batch is padded to one.
    batch = None if x.shape[0] else tf.shape(x)[0]
    if batch is not None:
        more = tf.maximum(0, 1 - batch)
        operands = [add_zeros(one, axis=0, after=more) for one in operands]
    x, lengths, *padded = operands
    y, h, c, _, _ = tf.raw_ops.CudnnRNNV3(
        input=x,
        input_h=padded[0],
        input_c=padded[-1] if mode == "lstm" else tf.zeros([], x.dtype),
        params=_params(mode, kernel, recurrent, bias),
        sequence_lengths=lengths,
        rnn_mode=mode,
        time_major=False,
    )
    results = [y, h, c][: 1 + len(states)]
    if batch is not None:
        results = [one[:batch] for one in results]
    y, *last = results
    return [y, *(tf.squeeze(state, 1) for state in last)]


def _in_tflite(
    mode: RnnMode,
    lengths: _Tensor,
    x: _Tensor,
    kernel: _Tensor,
    recurrent: _Tensor,
    bias: _Tensor,
    *states: _Tensor,
) -> list[_Tensor]:
    """Like `_infer`, as a loop that TFLite has operators for, with any batch."""
    weights = keras_weights(mode, *(_single(one) for one in (kernel, recurrent, bias)))
    sizes = Sizes(mode, "unidirectional", 1, recurrent.shape[0], kernel.shape[0])
    steps = tf.transpose(_single(x), [1, 0, 2])
    singles = [_single(state) for state in states]
    y, last = LOOPS["update"](sizes, weights, steps, singles, lengths)
    y = tf.transpose(zero_past(y, lengths), [1, 0, 2])
    return [tf.cast(one, x.dtype) for one in (y, *last)]


def _single(tensor: _Tensor) -> _Tensor:
    """In float32, in which TFLite runs products of matrices."""
    return tf.cast(tensor, tf.float32)


def _params(
    mode: RnnMode, kernel: _Tensor, recurrent: _Tensor, bias: _Tensor
) -> _Tensor:
    """Packs Keras's weights for the op; `bias` is [0, 1 or 2, gates * units]."""

    def gates(tensor: _Tensor, axis: int) -> list[_Tensor]:
        if mode != "gru":
            return [tensor]
        z, r, h = tf.split(tensor, 3, axis=axis)
        return [r, z, h]

    parts = [
        gate for one in (kernel, recurrent) for gate in gates(tf.transpose(one), axis=0)
    ]
    missing = tf.zeros([2 - bias.shape[0], bias.shape[1]], bias.dtype)
    parts += [missing, tf.concat(gates(bias, axis=-1), axis=-1)]
    return tf.concat([tf.reshape(part, [-1]) for part in parts], axis=0)
