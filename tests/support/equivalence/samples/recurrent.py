"""Recurrent layers of cuDNN, which the native library runs on the CPU."""

import numpy as np

from support.equivalence.samples.kit import Samples, real

SAMPLES = Samples()

INPUT, STATE = real(4, 2, 3), real(1, 2, 5)
LENGTHS = np.array([4, 2], np.int32)
MODES = {"lstm": 4, "gru": 3, "rnn_tanh": 1}


def params(gates: int) -> np.ndarray:
    return real(gates * 5 * (3 + 5 + 2), low=-0.5, high=0.5)


def gradients(forward, *reserved):
    """The backward op's inputs after the forward op's, from what that put out."""
    outputs = forward[:3]
    return (*outputs, *outputs, *reserved)


@SAMPLES.program()
def trained_rnn(run):
    for mode, gates in MODES.items():
        given = (INPUT, STATE, STATE if mode == "lstm" else 0.0, params(gates))
        rnn = run.CudnnRNN(*given, rnn_mode=mode)
        run.CudnnRNNBackprop(*given, *gradients(rnn, rnn[3]), rnn_mode=mode)
        rnn = run.CudnnRNNV2(*given, rnn_mode=mode)
        run.CudnnRNNBackpropV2(*given, *gradients(rnn, rnn[3], rnn[4]), rnn_mode=mode)
        given = (*given, LENGTHS)
        rnn = run.CudnnRNNV3(*given, rnn_mode=mode)
        run.CudnnRNNBackpropV3(*given, *gradients(rnn, rnn[3], rnn[4]), rnn_mode=mode)


SAMPLES.add("CudnnRNNV3", INPUT, STATE, STATE, params(4), LENGTHS, is_training=False)
SAMPLES.add("CudnnRNNParamsSize", 1, 5, 3, T=np.float32, S=np.int64, rnn_mode="gru")


@SAMPLES.program()
def canonical_params(run):
    sizes = (1, 5, 3)
    weights, biases = run.CudnnRNNParamsToCanonical(*sizes, params(4), num_params=8)
    run.CudnnRNNCanonicalToParams(*sizes, weights, biases)
    pieces = {"num_params_weights": 8, "num_params_biases": 8}
    weights, biases = run.CudnnRNNParamsToCanonicalV2(*sizes, params(4), **pieces)
    run.CudnnRNNCanonicalToParamsV2(*sizes, weights, biases)
