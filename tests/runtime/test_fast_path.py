"""Eager calls without the extension module, which a source tree may lack."""

import subprocess
import sys

from support.places import environment

CODE = """
import sys
sys.modules["opwright_runtime._lib.fast_path"] = None
import numpy as np
import tensorflow as tf
import opwright
from opwright.array import concat_v2
from opwright.linalg import MatMul, mat_mul
from opwright.math import AddV2, add_v2
from opwright_runtime._binding import fast_path

assert not fast_path.is_native
scope = opwright.Scope.current()
x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
assert add_v2(x, 1).numpy().tolist() == [[2, 3], [4, 5]]
assert AddV2.create(scope, x, x).numpy().tolist() == [[2, 4], [6, 8]]
options = MatMul.Options(transpose_a=True)
assert MatMul.create(scope, x, x, options).numpy().tolist() == [[10, 14], [14, 20]]
assert mat_mul(x, x, transpose_a=True).numpy().tolist() == [[10, 14], [14, 20]]
assert concat_v2([x, x], 0).shape == (4, 2)
added = tf.function(lambda a: add_v2(a, a))(x)
assert added.numpy().tolist() == [[2, 4], [6, 8]]
empty = tf.zeros((2**31, 1, 0)), tf.zeros((1, 2**32, 0))
try:
    add_v2(*empty)
except opwright.OpError as error:
    print(error)
"""


def test_calls_run_without_the_extension_module() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "must be less than 9223372036854775808" in done.stdout
