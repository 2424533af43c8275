"""torch's recurrent modules and the packed parameters of the CudnnRNN ops.

`params_from_torch` packs the weights of a module, and `params_to_torch` sets the
weights of a module from packed parameters. Nothing here imports torch: a module is
recognized by its attributes, and weights by their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Protocol, TypeAlias, cast

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from opwright_runtime.rnn.packed import (
    GATES,
    Array,
    PackedParams,
    Phrase,
    RnnMode,
    Sizes,
    check_sizes,
    input_error,
    vector,
)


def params_from_torch(
    module: object, *, prefix: str = "", rnn_mode: RnnMode | None = None
) -> PackedParams:
    """Packs the weights of a torch module for a CudnnRNN op.

    With these params and options and the same initial states, the op computes the
    outputs of the module in `eval()`. Its `time_major` is the opposite of torch's
    `batch_first`. Only weights are converted, not dropout.

    Args:
        module: a torch.nn.LSTM, with `proj_size` or without, GRU or RNN; or the
            `state_dict` of one, tensors or NumPy arrays by their names.
        prefix: the prefix of the names, if `module` has other entries: "encoder.rnn.".
        rnn_mode: "rnn_tanh" or "rnn_relu". Required only for the `state_dict` of an
            RNN, which does not contain it.

    Returns:
        The vector and the options that go with it. Missing biases become zeros.

    Raises:
        OpInputError: the module does not meet these conditions. The error names the
            condition.
    """
    weights = _Weights(module, prefix, rnn_mode)
    sizes = weights.sizes
    if rnn_mode not in (None, sizes.rnn_mode):
        raise input_error("rnn_mode", rnn_mode, (sizes.rnn_mode,))
    arrays = {name: _array(value) for name, value in weights.tensors.items()}
    dtypes = {str(array.dtype) for array in arrays.values()}
    if len(dtypes) > 1:
        raise input_error(
            "module", Phrase(" and ".join(sorted(dtypes))), "of one dtype"
        )
    first = next(iter(arrays.values()))
    zeros = np.zeros(sizes.gates * sizes.num_units, first.dtype)
    return sizes.pack(
        [
            (
                [arrays[name] for name in matrices],
                np.stack([arrays.get(name, zeros) for name in biases]),
            )
            for matrices, biases in _names(sizes)
        ]
    )


def params_to_torch(
    params: ArrayLike | PackedParams, module: object, *, prefix: str = ""
) -> None:
    """Sets the weights of a torch module from the params of a CudnnRNN op.

    The inverse of `params_from_torch`.

    Args:
        params: PackedParams; or [params_size], laid out as CudnnRNNParamsSize
            describes: an array, a tensor, a variable.
        module: as `params_from_torch` takes it. Its tensors are overwritten in place;
            they have the dtype of `params`, or one that holds all its values.
        prefix: the prefix of the names, if `module` has other entries.

    Raises:
        OpInputError: the module does not meet these conditions; or `params` were packed
            from another module, or have the wrong length, a dtype that the tensors
            cannot hold, or biases where the module has none. No weight changes in these
            cases.
    """
    packed = vector(params)
    mode = params.rnn_mode if isinstance(params, PackedParams) else "rnn_tanh"
    weights = _Weights(module, prefix, mode)
    check_sizes(params, packed.size, weights.sizes)
    cells = zip(_names(weights.sizes), weights.sizes.unpack(packed), strict=True)
    values = {
        name: value
        for (matrices, biases), (some, both) in cells
        for name, value in zip(matrices + biases, [*some, *both], strict=True)
    }
    for name, value in values.items():
        tensor = weights.tensors.get(name)
        if tensor is not None:
            _check_fits(name, tensor, value)
        elif value.any():
            given = Phrase("with biases that are not zero")
            raise input_error("params", given, "without biases: the module has none")
    for name, tensor in weights.tensors.items():
        if isinstance(tensor, np.ndarray):
            tensor[...] = values[name]
        else:
            whole = tensor.detach()
            # torch cannot read NumPy's bfloat16. A float64 can represent every value.
            whole.copy_(whole.new_tensor(values[name].astype(np.float64)))


class _Tensor(Protocol):
    """The part of the interface of torch's tensors that this module uses."""

    @property
    def dtype(self) -> object: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    def detach(self) -> _Tensor: ...
    def cpu(self) -> _Tensor: ...
    def float(self) -> _Tensor: ...
    def numpy(self) -> Array: ...
    def new_tensor(self, data: Array) -> _Tensor: ...
    def copy_(self, source: _Tensor) -> object: ...


_Tensors: TypeAlias = Mapping[str, _Tensor | Array]

_MODULE = "a torch.nn.LSTM, GRU or RNN, or the state_dict of one"
_NAME = re.compile(r"(weight_(ih|hh|hr)|bias_(ih|hh))_l(\d+)(_reverse)?")


class _Weights:
    """The tensors of a module by their names, after checks, and their sizes."""

    def __init__(self, module: object, prefix: str, plain: RnnMode | None) -> None:
        """`plain`: the mode of an RNN in a `state_dict`, which lacks its activation."""
        state_dict = getattr(module, "state_dict", None)
        if isinstance(module, Mapping):
            state = cast(_Tensors, module)
        elif callable(state_dict) and not isinstance(module, type):
            state = cast(_Tensors, state_dict())
            mode_name = str(getattr(module, "mode", "")).lower()
            plain = mode_name if mode_name in GATES else plain
        else:
            raise input_error("module", module, _MODULE)
        self.tensors: _Tensors = {
            name.removeprefix(prefix): value
            for name, value in state.items()
            if name.startswith(prefix)
        }
        self._check_names(state)
        self.sizes = self._sizes(plain)
        self._check_shapes()

    def _check_names(self, state: _Tensors) -> None:
        strange = [name for name in self.tensors if not _NAME.fullmatch(name)]
        needed = ("weight_ih_l0", "weight_hh_l0")
        missing = [name for name in needed if name not in self.tensors]
        if not strange and not missing:
            return
        given = f"one with {strange[0]!r}" if strange else f"one without {missing[0]!r}"
        end = needed[0]
        prefixes = [repr(name[: -len(end)]) for name in state if name.endswith(end)]
        more = f", of which prefix tells: {', '.join(prefixes)}" if prefixes else ""
        raise input_error("module", Phrase(given), _MODULE + more)

    def _shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.tensors[name].shape)

    def _sizes(self, plain: RnnMode | None) -> Sizes:
        for name in self.tensors:
            rank = 1 if name.startswith("bias") else 2
            if len(self._shape(name)) != rank:
                given = Phrase(f"of shape {list(self._shape(name))}")
                raise input_error(name, given, f"of rank {rank}")
        rows, input_size = self._shape("weight_ih_l0")
        num_units, num_proj = self._shape("weight_hh_l0")[1], 0
        if "weight_hr_l0" in self.tensors:
            num_proj, num_units = self._shape("weight_hr_l0")
        modes: dict[int, RnnMode | None] = {4: "lstm", 3: "gru", 1: plain}
        gates, rest = divmod(rows, num_units) if num_units else (0, 0)
        if rest or gates not in modes or (num_proj and gates != 4) or not input_size:
            shapes = [
                list(self._shape(name)) for name in ("weight_ih_l0", "weight_hh_l0")
            ]
            given = Phrase(f"one with weights of shape {shapes[0]} and {shapes[1]}")
            raise input_error("module", given, _MODULE)
        mode = modes[gates]
        if mode is None or GATES[mode] != gates:
            raise input_error("rnn_mode", mode, ("rnn_tanh", "rnn_relu"))
        found = [_NAME.fullmatch(name) for name in self.tensors]
        layers = {int(match[4]) for match in found if match}
        backwards = any(match[5] for match in found if match)
        return Sizes(
            mode,
            "bidirectional" if backwards else "unidirectional",
            1 + max(layers),
            num_units,
            input_size,
            num_proj,
        )

    def _check_shapes(self) -> None:
        rows = self.sizes.gates * self.sizes.num_units
        wanted: dict[str, tuple[int, ...]] = {}
        for (matrices, biases), shapes in zip(
            _names(self.sizes), self.sizes.matrices(), strict=True
        ):
            wanted.update(zip(matrices, shapes, strict=True))
            if any(name.startswith("bias") for name in self.tensors):
                wanted.update(dict.fromkeys(biases, (rows,)))
        for name in {**wanted, **self.tensors}:
            if name not in self.tensors:
                given = Phrase(f"one without {name!r}")
                raise input_error("module", given, _MODULE)
            if name not in wanted:
                raise input_error("module", Phrase(f"one with {name!r}"), _MODULE)
            if self._shape(name) != wanted[name]:
                given = Phrase(f"of shape {list(self._shape(name))}")
                raise input_error(name, given, f"of shape {list(wanted[name])}")


def _names(sizes: Sizes) -> Iterator[tuple[list[str], list[str]]]:
    """torch's names of the matrices and the biases, for each cell."""
    kinds = ["ih", "hh", *(["hr"] if sizes.num_proj else [])]
    for layer in range(sizes.num_layers):
        for end in ("", "_reverse")[: sizes.dirs]:
            matrices = [f"weight_{kind}_l{layer}{end}" for kind in kinds]
            yield matrices, [f"bias_{kind}_l{layer}{end}" for kind in kinds[:2]]


def _array(tensor: _Tensor | Array) -> Array:
    if isinstance(tensor, np.ndarray):
        return tensor
    if not hasattr(tensor, "detach"):
        return np.asarray(tensor)
    here = tensor.detach().cpu()
    if str(here.dtype) != "torch.bfloat16":
        return here.numpy()
    bfloat16 = cast("type[np.floating]", tf.bfloat16.as_numpy_dtype)
    return here.float().numpy().astype(bfloat16)


def _check_fits(name: str, tensor: _Tensor | Array, value: Array) -> None:
    dtype = _array(tensor).dtype
    if not np.can_cast(value.dtype, dtype, "safe"):
        raise input_error(
            "params", Phrase(str(value.dtype)), f"{dtype}, which {name} has"
        )
    writable = isinstance(tensor, np.ndarray) and tensor.flags.writeable
    if not writable and not hasattr(tensor, "copy_"):
        allowed = "a tensor of torch, or a NumPy array that can be written"
        raise input_error(name, Phrase(type(tensor).__name__), allowed)
