"""What the report says of SavedModels, captures, chips and outputs of unknown size."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import keras
import pytest
import tensorflow as tf
from rich.console import Console

from opwright import check_tpu
from opwright_runtime.tpu_check import Argument, Blocker, Report, tables
from tpu.support.programs import spell

FACTORS = tf.constant([1.0, 2.0, 3.0])


class Labels(tf.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        pairs = tf.lookup.KeyValueTensorInitializer(tf.range(3), tf.range(3))
        self.table = tf.lookup.StaticHashTable(pairs, -1)
        self.factors = tf.Variable(FACTORS, name="factors")

    @tf.function  # type: ignore[untyped-decorator]
    def of(self, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.name_scope("labels"):
            found = self.table.lookup(ids)
        return {"label": tf.cast(found, tf.float32) * self.factors}


def test_check_tpu_saved_model_names_scopes_tables_and_variables(
    tmp_path: Path,
) -> None:
    labels = Labels()
    given = tf.TensorSpec([3], tf.int32, "ids")
    signature = labels.of.get_concrete_function(given)
    tf.saved_model.save(labels, str(tmp_path), {"serving_default": signature})
    report = check_tpu(tmp_path, chips="v5e")
    (blocker,) = report.blockers
    assert blocker.op == "LookupTableFindV2"
    assert blocker.where is not None and blocker.where.startswith("in labels/")
    assert blocker.code is None and blocker.remedy
    names = [argument.name for argument in report.arguments]
    assert {"table", "factors"} <= {*names}
    assert "in labels/" in str(report)


def test_check_tpu_saved_keras_model_names_the_layer(tmp_path: Path) -> None:
    images = keras.Input([4], name="images", batch_size=2)
    spelled = keras.layers.Lambda(spell, output_shape=(4,), name="spelled")(images)
    keras.Model(images, spelled, name="mine").export(tmp_path, verbose=False)
    report = check_tpu(tmp_path, images=[2, 4], chips="v5e")
    assert all("spelled" in str(blocker.where) for blocker in report.blockers)


def test_check_tpu_captured_tensor_has_its_name_in_the_code() -> None:
    scale = tf.constant([2.0, 2.0, 2.0])

    def scaled(x: tf.Tensor) -> tf.Tensor:
        return tf.strings.as_string(x * scale * FACTORS)

    report = check_tpu(scaled, tf.TensorSpec([3]), chips="v5e")
    assert {argument.name for argument in report.arguments} == {"x", "scale", "FACTORS"}


def test_check_tpu_report_of_blockers_says_which_chips_were_asked_for() -> None:
    report = check_tpu(spell, tf.TensorSpec([8, 4]), chips=("v6e", "v4"))
    first = str(report).splitlines()[0]
    assert first == "spell does not compile for any TPU (asked for v6e and v4)"


@pytest.mark.parametrize("width", [40, 80, 200])
def test_report_on_a_terminal_breaks_no_name(width: int) -> None:
    name = "encoder/layer_normalization_of_the_first_block/StringLength"
    place = "/home/someone/projects/translation/encoder_of_sentences.py:128"
    blocker = Blocker("StringLength", name, "XLA has no kernel for it", place)
    argument = Argument(f"{name}/kernel", "variable", "float32", (8, 4), 128)
    file = StringIO()
    console = Console(file=file, width=width, force_terminal=True, color_system=None)
    report = Report("f", (argument,), (blocker,))
    console.print(tables.render(report, console.width), crop=False)
    printed = file.getvalue()
    assert name in printed and f"{name}/kernel" in printed and place in printed


@pytest.mark.rotating
def test_check_tpu_says_to_what_outputs_of_unknown_size_are_padded() -> None:
    def positive(x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"all": x + 1.0, "places": tf.where(x > 0)}

    report = check_tpu(positive, tf.TensorSpec([8]), chips="v5e")
    assert report.compiles
    (output,) = report.padded_outputs
    assert (output.name, output.dtype, output.bound) == ("places", "int64", (8, 1))
    assert "the size of output places: XLA pads it to int64[8, 1]" in str(report)
    found = json.loads(json.dumps(report.as_dict()))
    assert found["padded_outputs"][0]["bound"] == [8, 1]
