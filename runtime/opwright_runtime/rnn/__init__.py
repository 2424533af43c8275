"""Recurrent layers: converts weights of Keras and torch for the CudnnRNN ops."""

from opwright_runtime.rnn.keras_weights import params_from_keras, params_to_keras
from opwright_runtime.rnn.packed import PackedParams
from opwright_runtime.rnn.torch_weights import params_from_torch, params_to_torch

__all__ = [
    "PackedParams",
    "params_from_keras",
    "params_from_torch",
    "params_to_keras",
    "params_to_torch",
]
