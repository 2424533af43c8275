"""Options: frozen, checked, merged, and aware of what was given."""

import copy
import pickle

import numpy as np
import pytest
import tensorflow as tf

from opwright import OpOptionError, Scope, TFloat32, op_class
from opwright.linalg import MatMul
from opwright.nn import CudnnRNNV3, LeakyRelu
from opwright_runtime.gencode import default

Options = CudnnRNNV3.Options


def test_options_defaults_are_not_explicit():
    options = Options()
    assert options.explicit == frozenset()
    assert options.rnn_mode == "lstm"
    assert options.dropout == 0.0
    assert options.time_major is True
    assert repr(options) == "CudnnRNNV3.Options()"


def test_every_default_is_the_registry_s():
    for attr in CudnnRNNV3.op_def.options:
        found = getattr(Options(), attr.python_name)
        assert found == attr.default
        assert type(found) is type(attr.default)


def test_options_builders_change_copies():
    options = Options(rnn_mode="gru")
    changed = options.with_dropout(0.5).with_seed(7)
    assert repr(changed) == "CudnnRNNV3.Options(rnn_mode='gru', dropout=0.5, seed=7)"
    assert changed.explicit == {"rnn_mode", "dropout", "seed"}
    assert options.explicit == {"rnn_mode"}
    assert options.dropout == 0.0


def test_options_given_default_is_explicit():
    assert Options(rnn_mode="lstm").explicit == {"rnn_mode"}
    assert Options(rnn_mode="lstm") == Options()


def test_names_that_it_lacks():
    options = MatMul.Options()
    said = r"^MatMul\.Options has no with_transpose; it has transpose_a, transpose_b"
    with pytest.raises(AttributeError, match=said):
        options.with_transpose(True)
    assert not hasattr(options, "transpose")


def test_options_assignment_raises():
    options = Options()
    with pytest.raises(AttributeError, match=r"with_seed\(\) makes a changed copy"):
        options.seed = 3
    with pytest.raises(AttributeError, match="frozen"):
        del options.seed
    with pytest.raises(AttributeError):
        options.other = 3


def test_equality_and_hash_are_by_value():
    assert Options(seed=1) == Options().with_seed(1)
    assert hash(Options(seed=1)) == hash(Options().with_seed(1))
    assert Options(seed=1) != Options(seed=2)
    assert Options() != op_class("CudnnRNNV2").Options()
    assert len({Options(seed=1), Options(seed=1), Options(seed=2)}) == 2


def test_options_as_dict_has_values():
    assert op_class("TopKV2").Options(sorted=False).as_dict() == {"sorted": False}
    assert list(Options().as_dict()) == list(Options.__slots__)


def test_options_merge_last_explicit_value_wins():
    first = Options(rnn_mode="gru", dropout=0.5)
    last = Options(dropout=0.25, seed=1)
    merged = Options.merge([first, last])
    assert merged == Options(rnn_mode="gru", dropout=0.25, seed=1)
    assert merged.explicit == {"rnn_mode", "dropout", "seed"}
    # A default, even the last, is not what the caller set.
    assert Options.merge([first, Options()]) == first
    assert Options.merge([Options(), first]) == first
    assert Options.merge([Options(dropout=0.5), Options(dropout=0.0)]).dropout == 0.0
    assert Options.merge([first]) is first
    assert Options.merge([]) == Options()


def test_create_several_options_are_merged():
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    op = MatMul.create(
        Scope.current(),
        x,
        x,
        MatMul.Options(transpose_a=True),
        MatMul.Options(transpose_b=True),
        MatMul.Options(transpose_a=False),
    )
    assert np.array_equal(op.product, tf.matmul(x, x, transpose_b=True))


@pytest.mark.parametrize("other", [LeakyRelu.Options(), "lstm", {"seed": 1}, Options])
def test_options_of_another_op_are_refused(other):
    with pytest.raises(OpOptionError) as caught:
        Options.merge([Options(), other])
    assert str(caught.value).startswith(
        "CudnnRNNV3: options must be CudnnRNNV3.Options, not "
    )
    assert caught.value.argument == "options"
    assert caught.value.given is other


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "rnn_mode",
            "LSTM",
            "one of 'rnn_relu', 'rnn_tanh', 'lstm', 'gru', not 'LSTM'",
        ),
        ("rnn_mode", 3, "a str or bytes, not 3"),
        ("rnn_mode", None, "a str or bytes, not None"),
        ("dropout", "0.5", "a float, not '0.5'"),
        ("dropout", True, "a float, not True"),
        ("seed", 1.5, "an int, not 1.5"),
        ("seed", True, "an int, not True"),
        ("seed", 2**63, "an int of 64 bits, not 9223372036854775808"),
        ("time_major", 1, "a bool, not 1"),
    ],
)
def test_options_bad_value_is_refused(name, value, message):
    for make in (
        lambda: Options(**{name: value}),
        lambda: getattr(Options(), f"with_{name}")(value),
    ):
        with pytest.raises(OpOptionError) as caught:
            make()
        error = caught.value
        assert str(error) == f"CudnnRNNV3: {name} must be {message}"
        assert (error.op, error.argument, error.given) == ("CudnnRNNV3", name, value)


def test_options_below_minimum_or_bad_element_are_refused():
    with pytest.raises(OpOptionError, match="max_images must be at least 1, not 0"):
        op_class("ImageSummary").Options(max_images=0)
    with pytest.raises(OpOptionError) as caught:
        op_class("Conv2D").Options(dilations=[1, "a"])
    assert str(caught.value) == (
        "Conv2D: dilations must be a sequence, each element an int, not [1, 'a']"
    )
    with pytest.raises(OpOptionError, match="dilations must be a sequence, each"):
        op_class("Conv2D").Options(dilations=3)


def test_options_values_are_normalised():
    assert type(Options(dropout=1).dropout) is float
    assert type(Options(dropout=np.float32(0.5)).dropout) is float
    assert type(Options(seed=np.int32(5)).seed) is int
    assert Options(time_major=np.bool_(False)).time_major is False
    assert Options(rnn_mode=b"gru").rnn_mode == "gru"
    assert op_class("Conv2D").Options(dilations=[1, 2, 2, 1]).dilations == (1, 2, 2, 1)
    queue = op_class("FIFOQueueV2").Options(shapes=[[], [None, 2]])
    assert queue.shapes == (tf.TensorShape([]), tf.TensorShape([None, 2]))
    parse = op_class("ParseExampleDatasetV2").Options(ragged_value_types=[TFloat32])
    assert parse.ragged_value_types == (tf.float32,)
    placeholder = op_class("Placeholder").Options(shape=[None, 3])
    assert placeholder.shape == tf.TensorShape([None, 3])


def test_negative_zero_and_infinity_survive():
    assert str(LeakyRelu.Options(alpha=-0.0).alpha) == "-0.0"
    with tf.Graph().as_default():
        for alpha in (-0.0, 0.0, float("inf")):
            options = LeakyRelu.Options(alpha=alpha)
            op = LeakyRelu.create(Scope.current(), [1.0], options)
            assert str(op.inputs.alpha) == str(alpha)


def test_options_copies_and_pickles_are_equal():
    options = Options(rnn_mode="gru", seed=3)
    for again in (copy.copy(options), copy.deepcopy(options), pickled(options)):
        assert again == options
        assert again.explicit == options.explicit


def pickled(value):
    return pickle.loads(pickle.dumps(value))


def test_default_marker_repr_shows_value():
    assert repr(default("lstm")) == "default('lstm')"
    assert repr(default(TFloat32)) == "default(tf.float32)"
