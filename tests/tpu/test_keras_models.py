"""Keras models in the TPU check: as inference by default, and as training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf
import tf_keras

from opwright import TpuCheckError, check_tpu
from opwright_runtime.tpu_check import Report, cli, inputs, lowering
from tpu.support.programs import flipped

IMAGES = [2, 8, 8, 3]
SPEC = tf.TensorSpec(IMAGES)


class Unbuilt(keras.Model):
    """A model without declared inputs, whose call has no argument `training`."""

    def __init__(self) -> None:
        super().__init__()
        self.flip = keras.layers.RandomFlip()
        self.norm = keras.layers.BatchNormalization()

    def call(self, images: Any) -> Any:
        return self.norm(self.flip(images))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keras") / "flipped.keras"
    flipped.save(path)
    return path


def updated(report: Report) -> int | None:
    """The size of the variables that the program assigns."""
    assert report.compiles
    (compilation,) = report.compilations
    return compilation.alias_bytes


def ops(program: Any, *args: Any, **kwargs: Any) -> tuple[str, ...]:
    return lowering.op_types(lowering.from_function(program, args, kwargs))


@pytest.mark.rotating
def test_check_tpu_keras_model_is_inference(file: Path) -> None:
    for model in (flipped, file):
        report = check_tpu(model, IMAGES, chips="v5e")
        assert updated(report) == 0 and report.training is False
        assert "seed_generator" not in str(report)


@pytest.mark.rotating  # A training step below compiles the same model.
def test_check_tpu_keras_model_in_training_updates_its_variables(file: Path) -> None:
    for model in (flipped, file):
        report = check_tpu(model, IMAGES, chips="v5e", training=True)
        assert updated(report) and report.training is True


@pytest.mark.rotating
def test_check_tpu_keras_model_with_an_example_by_place_and_name_is_inference() -> None:
    for report in (
        check_tpu(flipped, SPEC, chips="v5e"),
        check_tpu(flipped, chips="v5e", images=IMAGES),
    ):
        assert updated(report) == 0


@pytest.mark.rotating
def test_check_tpu_keras_model_in_a_training_step_trains() -> None:
    def step(images: tf.Tensor) -> Any:
        return flipped(images, training=True)

    report = check_tpu(step, SPEC, chips="v5e")
    assert updated(report) and report.training is None


@pytest.mark.rotating
def test_check_tpu_keras_model_without_declared_inputs_is_inference() -> None:
    model = Unbuilt()
    model(tf.ones(IMAGES))
    report = check_tpu(model, SPEC, chips="v5e")
    assert updated(report) == 0 and report.training is False
    assert "AssignVariableOp" not in ops(model, SPEC)
    assert "AssignVariableOp" in ops(model, SPEC, training=True)


def test_check_tpu_keras_layer_is_inference() -> None:
    layer = keras.layers.RandomFlip()
    assert "ReverseV2" not in ops(layer, SPEC)
    assert "ReverseV2" in ops(layer, SPEC, training=True)


def test_check_tpu_keras_2_model_is_inference() -> None:
    layers = tf_keras.layers
    model = tf_keras.Sequential(
        [layers.InputLayer(IMAGES[1:]), layers.BatchNormalization()]
    )
    assert "AssignVariableOp" not in ops(model, SPEC)
    assert any("Assign" in op for op in ops(model, SPEC, training=True))


def test_check_tpu_keras_2_model_without_training_is_called_without_it() -> None:
    class Doubled(tf_keras.Model):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return x * 2

    assert "Mul" in ops(Doubled(), SPEC)
    with pytest.raises(TpuCheckError, match="no input 'training'; there are: x"):
        check_tpu(Doubled(), SPEC, training=True)


def test_check_tpu_keras_2_training_without_its_name_is_passed_on() -> None:
    layer = tf_keras.layers.Dropout(0.5)
    assert any("Random" in op for op in ops(layer, SPEC, True))
    assert not any("Random" in op for op in ops(layer, SPEC))


@pytest.mark.rotating
def test_check_tpu_keras_input_named_training_is_an_input() -> None:
    one = keras.Input([4], name="training")
    model = keras.Model(one, keras.layers.Dense(3)(one))
    report = check_tpu(model, chips="v5e", training=[8, 4])
    assert report.compiles and report.arguments[0].name == "training"


def test_check_tpu_keras_training_that_is_no_bool_is_refused() -> None:
    with pytest.raises(TpuCheckError, match="must be True or False, not 'yes'"):
        check_tpu(flipped, IMAGES, training="yes")


@pytest.mark.rotating
def test_tpu_check_command_keras_model_is_inference(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = Path(__file__).parent / "support" / "programs.py"
    for program in (str(file), f"{module}:flipped"):
        arguments = [program, "--input", "2,8,8,3", "--chip", "v5e", "--json"]
        assert cli.main(arguments) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["training"] is False
        assert report["compilations"][0]["alias_bytes"] == 0


LEFT, RIGHT = keras.Input([16], name="left"), keras.Input([12, 8], name="right")
two = keras.Model(
    [LEFT, RIGHT],
    keras.layers.Dense(4)(LEFT) + keras.layers.Dense(4)(keras.layers.Flatten()(RIGHT)),
    name="two",
)


@pytest.mark.parametrize(
    "given",
    [
        ([8, 16], [8, 12, 8]),
        ([[8, 16], [8, 12, 8]],),
        ([8, 16],),
        (tf.TensorSpec([8, 16]), tf.TensorSpec([8, 12, 8])),
        ({"left": [8, 16], "right": [8, 12, 8]},),
    ],
    ids=["shapes", "list of shapes", "one shape", "specs", "dict of shapes"],
)
def test_check_tpu_shapes_of_several_inputs_by_place_gives_their_names(
    given: Any,
) -> None:
    said = r"^two has several inputs: give left=\[8, 16\], right=\[8, 12, 8\]$"
    with pytest.raises(TpuCheckError, match=said):
        check_tpu(two, *given, chips="v5e")


def test_check_tpu_examples_in_the_structure_of_several_inputs_are_passed_on() -> None:
    specs = [tf.TensorSpec([8, 16]), tf.TensorSpec([8, 12, 8])]
    assert check_tpu(two, specs, chips="v5e").compiles


@pytest.mark.parametrize(
    ("program", "name"),
    [
        (keras.layers.Dense(4, name="layer"), "layer"),
        (keras.Sequential([keras.layers.Dense(4)], name="open"), "open"),
    ],
)
def test_check_tpu_shape_without_known_inputs_says_to_give_a_spec(
    program: Any, name: str
) -> None:
    wanted = rf"^{name} does not know its inputs: .* give tf\.TensorSpec\(\[8, 16\], "
    for args, kwargs in (([[8, 16]], {}), ([], {"inputs": [8, 16]})):
        with pytest.raises(TpuCheckError, match=wanted):
            check_tpu(program, *args, chips="v5e", **kwargs)
    with pytest.raises(
        TpuCheckError, match=r"missing 'inputs'; its inputs are: inputs$"
    ):
        check_tpu(program, chips="v5e")


def test_check_tpu_shapes_in_a_structure_are_kept_in_the_advice() -> None:
    left, right = keras.Input([None, 4], name="left"), keras.Input([4], name="right")
    model = keras.Model([left, right], keras.layers.Dense(2)(left) + right[:, :1, None])
    shapes = {"left": [2, 7, 4], "right": [2, 4]}
    for given in ([*shapes.values()], shapes):
        with pytest.raises(TpuCheckError, match=r"left=\[2, 7, 4\], right=\[2, 4\]$"):
            check_tpu(model, given, chips="v5e")


def test_check_tpu_layer_with_a_wrong_name_lists_its_inputs() -> None:
    with pytest.raises(TpuCheckError, match="dense has no input 'x'; there are: inp"):
        check_tpu(keras.layers.Dense(4, name="dense"), x=SPEC, chips="v5e")


def test_check_tpu_sizes_as_arguments_says_to_give_one_list(file: Path) -> None:
    for model in (flipped, file):
        with pytest.raises(TpuCheckError, match=r"as one list, \[2, 8, 8, 3\]$"):
            check_tpu(model, *IMAGES, chips="v5e")
    with pytest.raises(TpuCheckError, match=r"one list, in tf\.TensorSpec\(\[8, 4\], "):
        check_tpu(keras.layers.Dense(4), 8, 4, chips="v5e")


@pytest.mark.rotating
def test_check_tpu_input_without_a_name_takes_the_names_of_all_forms(
    tmp_path: Path,
) -> None:
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(3)])
    model.save(tmp_path / "dense.keras")
    model.export(tmp_path / "dense", verbose=False)
    for form in (model, tmp_path / "dense.keras", tmp_path / "dense"):
        for name in ("keras_tensor", "input_layer", "rows"):
            report = check_tpu(form, chips="v5e", **{name: [8, 4]})
            assert report.compiles and report.arguments[0].shape == (8, 4)
    with pytest.raises(TpuCheckError, match="Did you mean check_tpu's argument chips"):
        check_tpu(model, chip=["v5e"])


@pytest.mark.parametrize("names", ["keras_tensor", "input_layer"])
def test_fixed_inputs_without_names_are_matched_in_order(names: str) -> None:
    declared = {
        "keras_tensor_8": tf.TensorSpec([None, 4], name="keras_tensor_8"),
        "keras_tensor_9": tf.TensorSpec([None, 5], name="keras_tensor_9"),
    }
    given = {f"{names}_11": [8, 5], f"{names}_2": [8, 4]}
    found = inputs.fixed("model", declared, (), given)
    assert [spec.shape.as_list() for spec in found.values()] == [[8, 4], [8, 5]]


def test_fixed_named_input_takes_no_other_name() -> None:
    declared = {"x": tf.TensorSpec([None, 4], name="x")}
    with pytest.raises(TpuCheckError, match=r"model has no input 'y'; there are: x$"):
        inputs.fixed("model", declared, (), {"y": [8, 4]})
