"""Models with one CudnnRNN node, drawn from seeds, and what becomes of them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from convert.support.models import Outputs, Run, run_onnx, run_tflite
from opwright.convert import ConvertError, to_onnx, to_plain, to_tflite
from rnn.support.cases import (
    MODES,
    TOLERANCE,
    Case,
    Values,
    all_lengths,
    draw_values,
    error,
    expect,
    sequence,
    state,
    wide,
)

#: What a model has its parameters from.
PARAMS = ("variable", "constant", "made in the graph")
#: Which sizes are fixed: none, those in the model's signature, or those in an option.
SIZES = ("open", "batch", "batch and time", "shapes=", "batch=")

NARROW = (tf.half, tf.bfloat16)
#: The seeds of models whose outputs differ too much with weights of 8 bits.
_COARSE = {434}
_OPEN_FUSED = ("auto", "auto", False, True)
_FIXED_FUSED = ("auto", True, True, False)


class Drawn:
    """A call of a CudnnRNN op as a model, drawn from a seed.

    Attributes:
        case: what is computed.
        version: of the op.
        params: one of `PARAMS`.
        masked: whether the lengths are the sums of a mask.
        cast: whether inputs and outputs are float32, and only the node has the dtype.
        reads_c: whether the final cell state of an LSTM is an output.
        sizes: one of `SIZES`.
        fused: an option of `to_tflite`.
        quantize: another one.
    """

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.version = rng.choice([1, 2, 3, 3])
        mode = MODES[seed % len(MODES)]
        units, time, batch = rng.randint(1, 9), rng.randint(1, 6), rng.randint(1, 4)
        self.quantize = rng.choice([None] * 6 + ["dynamic", "float16"])
        if self.quantize:
            # The converter quantizes no weight of few elements.
            units = rng.randint(20, 40)
        input_mode = rng.choice(["linear_input", "skip_input", "auto_select"])
        third = self.version == 3
        lengths = tuple(rng.randint(0, time) for _ in range(batch))
        projected = mode == "lstm" and third and rng.random() < 0.4
        dtypes = [tf.float32] * 5 + [tf.float64, tf.half, tf.bfloat16]
        self.case = Case(
            mode,
            rng.choice(dtypes),
            rng.randint(1, 3),
            units,
            units if input_mode == "skip_input" else rng.randint(1, 9),
            time,
            batch,
            rng.random() < 0.5,
            input_mode,
            rng.randint(1, units) if projected else 0,
            not third or rng.random() < 0.5,
            lengths if third else None,
            seed,
        )
        self.params = rng.choice(PARAMS)
        self.masked = third and rng.random() < 0.3
        self.training = rng.random() < 0.5
        self.cast = self.case.dtype != tf.float32 and rng.random() < 0.5
        self.reads_c = mode == "lstm" and rng.random() < 0.5
        self.sizes = rng.choice(("open", "open", *SIZES))
        if self.sizes == "batch=" and self.case.time_major:
            # The option fixes first dimensions, which are not those of the batch.
            self.sizes = "open"
        self.fused: Any = rng.choice(
            _OPEN_FUSED if self.sizes == "open" else _FIXED_FUSED
        )
        if self.sizes != "open" and rng.random() < 0.5:
            # Plain TensorFlow has another loop for large batches that are fixed.
            batch = rng.randint(32, 40)
            lengths = tuple(rng.randint(0, time) for _ in range(batch))
            self.case = replace(
                self.case, batch=batch, lengths=lengths if third else None
            )

    def __str__(self) -> str:
        said = [f"version {self.version}", f"params {self.params}", self.sizes]
        said += [name for name in ("masked", "cast", "reads_c") if getattr(self, name)]
        return f"{self.case}, {', '.join(said)}, {self.options(to_tflite)}"

    @property
    def dtype(self) -> tf.DType:
        """Of inputs and outputs."""
        return tf.float32 if self.cast else self.case.dtype

    def options(self, convert: Any) -> dict[str, Any]:
        """What a conversion is called with."""
        found: dict[str, Any] = {}
        if self.sizes == "shapes=":
            found["shapes"] = {
                spec.name: spec.shape.as_list() for spec in self._signature(True, False)
            }
        if convert is to_tflite:
            found |= {"fused": self.fused, "quantize": self.quantize}
            if self.sizes == "batch=":
                found["batch"] = self.case.batch
        return found

    def refusal(self, convert: Any) -> str | None:
        """The pattern of the error that a conversion raises; None if it raises none."""
        if convert is not to_plain and self.dtype == tf.bfloat16:
            return r"input '\w' is bfloat16, which .*; let the signature take float32"
        if convert is not to_tflite or self.fused is not True:
            return None
        if self.case.mode != "lstm":
            return None
        begin = rf"node '.+' \(CudnnRNN{['', 'V2', 'V3'][self.version - 1]}\): "
        if self.case.projection:
            return begin + r"the fused operator is not used with a projection; pass"
        if self.sizes == "open":
            return begin + r"the batch is not fixed; pass batch= .* or fused='auto'"
        if self.reads_c:
            return begin + r"its final cell state is read, .*; pass fused='auto'"
        return None

    def coarse_refusal(self, convert: Any) -> str | None:
        """The error for a model whose weights do not fit 8 bits."""
        quantized = self.options(convert).get("quantize") == "dynamic"
        if not quantized or self.case.seed not in _COARSE:
            return None
        return r"the TFLite file differs from the source by up to 0\.05\d .* 8 bits"

    def values(self) -> tuple[Outputs, Outputs]:
        """The inputs in the model's layout, and what the reference gives."""
        case = self.case
        inputs, gradients = draw_values(case)
        inputs = Values(
            *map(self._rounded, (inputs.input, inputs.input_h, inputs.input_c)),
            inputs.params,
        )
        wanted = expect(case, inputs, gradients)
        given = {
            "x": sequence(case, inputs.input),
            "h": state(case, inputs.input_h),
        }
        found = {"y": wanted["output"], "last_h": wanted["output_h"]}
        if case.mode == "lstm":
            given["c"] = state(case, inputs.input_c)
        if self.reads_c:
            found["last_c"] = wanted["output_c"]
        given = {name: tf.cast(value, self.dtype) for name, value in given.items()}
        given["n"] = tf.constant(all_lengths(case), tf.int32)
        if self.masked:
            given["n"] = tf.sequence_mask(given["n"], case.time)
        return given, found

    def _rounded(self, value: Any) -> Any:
        return tf.cast(tf.cast(value, self.dtype), self.case.dtype)

    def time_major(self, outputs: Outputs) -> Outputs:
        """Outputs of a model, as the reference has them."""
        as_reference = {"y": sequence, "last_h": state, "last_c": state}
        return {
            name: as_reference[name](self.case, tf.constant(np.asarray(value)))
            for name, value in outputs.items()
        }

    def module(self) -> Any:
        """The model; its function is `serve`."""
        inputs, _ = draw_values(self.case)
        module: Any = tf.Module()
        module.params = tf.Variable(inputs.params)
        fixed = self.sizes in ("batch", "batch and time")
        module.serve = tf.function(
            self._function(module, inputs),
            input_signature=self._signature(fixed, self.sizes == "batch and time"),
            autograph=False,
        )
        return module

    def save(self, folder: Path) -> None:
        module = self.module()
        tf.saved_model.save(module, str(folder), signatures=module.serve)

    def _signature(self, batch_known: bool, time_known: bool) -> list[tf.TensorSpec]:
        case, shape = self.case, self.case.shape
        cells = shape.layers * shape.dirs
        batch = case.batch if batch_known else None
        time = case.time if time_known else None

        def spec(first: int | None, last: int, name: str) -> tf.TensorSpec:
            dims = [first, batch, last] if case.time_major else [batch, first, last]
            return tf.TensorSpec(dims, self.dtype, name)

        steps = tf.TensorSpec([batch, time], tf.bool, "n")
        lengths = tf.TensorSpec([batch], tf.int32, "n")
        found = [
            spec(time, case.input_size, "x"),
            spec(cells, shape.hidden, "h"),
            steps if self.masked else lengths,
        ]
        if case.mode == "lstm":
            found.append(spec(cells, case.units, "c"))
        return found

    def _function(self, module: Any, inputs: Values) -> Callable[..., Outputs]:
        case = self.case
        options = {k: v for k, v in case.options.items() if k != "time_major"}
        projection = options.pop("num_proj")
        if self.version == 3:
            options |= {"num_proj": projection, "time_major": case.time_major}
        op = getattr(
            tf.raw_ops, ("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3")[self.version - 1]
        )

        def params() -> Any:
            if self.params == "constant":
                return tf.constant(inputs.params.numpy(), case.dtype)
            if self.params == "variable":
                return module.params
            half = inputs.params.shape[0] // 2
            return tf.concat([module.params[:half], module.params[half:]], axis=0)

        def serve(x: Any, h: Any, n: Any, c: Any = None) -> Outputs:
            more = {}
            if self.version == 3:
                lengths = tf.reduce_sum(tf.cast(n, tf.int32), 1) if self.masked else n
                more["sequence_lengths"] = lengths
            outputs = op(
                input=tf.cast(x, case.dtype),
                input_h=tf.cast(h, case.dtype),
                input_c=tf.cast(0.0 if c is None else c, case.dtype),
                params=params(),
                is_training=self.training,
                **options,
                **more,
            )
            results = {"y": outputs[0], "last_h": outputs[1]}
            if self.reads_c:
                results["last_c"] = outputs[2]
            return {name: tf.cast(one, self.dtype) for name, one in results.items()}

        return serve


def run_plain(folder: Path) -> Run:
    loaded = tf.saved_model.load(str(folder))
    return lambda inputs: loaded.signatures["serving_default"](
        **{name: tf.constant(value) for name, value in inputs.items()}
    )


RUN_OF: dict[Any, Any] = {
    to_plain: run_plain,
    to_onnx: run_onnx,
    to_tflite: run_tflite,
}
#: The largest differences from the kernels in float32, for values up to 1.
FROM_KERNELS: dict[Any, float] = {to_plain: 5e-6, to_onnx: 2e-6, to_tflite: 2e-6}
#: From a number in float32 to the next one, relative to the number.
_STEP = 2.0**-23
#: The weights have 8 or 16 bits, so that the converter itself accepts these.
QUANTIZED = {"dynamic": 5e-2, "float16": 5e-3}


def from_kernels(drawn: Drawn, convert: Any) -> float:
    """The largest difference from the kernel, for values up to 1.

    A model of 16 bits may round each number to a neighbour of the kernel's, in each
    layer, so that it has the tolerance of the kernels to the reference. ONNX and TFLite
    compute float64 in float32. A plain result is within the tolerance of the kernels in
    float64, or may round to a neighbour in float32.
    """
    dtype = drawn.case.dtype
    if dtype in NARROW:
        allowed = TOLERANCE[dtype]
    elif dtype == tf.float64 and convert is to_plain:
        allowed = _STEP if drawn.cast else TOLERANCE[tf.float64]
    else:
        allowed = FROM_KERNELS[convert]
    if convert is to_tflite and drawn.quantize:
        allowed = max(allowed, QUANTIZED[drawn.quantize])
    return allowed


def from_reference(drawn: Drawn, convert: Any) -> float:
    """The same from NumPy in float64, relative to the largest value."""
    single = drawn.cast or convert is not to_plain
    dtype = drawn.case.dtype
    allowed = TOLERANCE[tf.float32 if dtype == tf.float64 and single else dtype]
    return max(allowed, from_kernels(drawn, convert))


@dataclass
class Made:
    """What became of a drawn model.

    Attributes:
        refused: the words of the error, or "".
        reported: the difference that the report has, for values up to 1.
        kernel: the difference from the kernel on the drawn inputs, likewise.
        reference: the error to NumPy in float64.
        faults: what is wrong.
    """

    refused: str = ""
    reported: float = 0.0
    kernel: float = 0.0
    reference: float = 0.0
    faults: list[str] = field(default_factory=list)


def convert_drawn(drawn: Drawn, convert: Any, folder: Path) -> Made:
    """Converts the model in a folder; finds all that is wrong.

    Args:
        drawn: the model.
        convert: the conversion.
        folder: it has the saved model as "source".
    """
    target = folder / "target"
    kept = b"kept"
    target.write_bytes(kept)
    made = Made()
    wanted = drawn.refusal(convert)
    try:
        report = convert(
            folder / "source", target, overwrite=True, **drawn.options(convert)
        )
    except ConvertError as refused:
        made.refused = str(refused)
        wanted = wanted or drawn.coarse_refusal(convert)
        if wanted is None or not re.match(wanted, made.refused):
            made.faults.append(f"refused: {made.refused}")
        if target.read_bytes() != kept or len([*folder.iterdir()]) != 2:
            made.faults.append("files have changed")
        return made
    if wanted is not None:
        made.faults.append("not refused")
    if len(report.found) != 1:
        made.faults.append(f"found {report.found}")
    compared, *_ = report.comparisons.values()
    made.reported = compared.difference / max(1.0, compared.scale)
    if not made.reported <= from_kernels(drawn, convert):
        made.faults.append(f"reported {made.reported:.2g}")
    _measure(drawn, convert, folder, made)
    return made


def _measure(drawn: Drawn, convert: Any, folder: Path, made: Made) -> None:
    """Runs the result twice, with other data between."""
    given, reference = drawn.values()
    kernel = drawn.time_major(run_plain(folder / "source")(given))
    run = RUN_OF[convert](folder / "target")
    first = drawn.time_major(run(given))
    run({**given, "x": -given["x"]})
    second = drawn.time_major(run(given))
    if first.keys() != reference.keys():
        made.faults.append(f"outputs {sorted(first)}")
        return
    for key, value in reference.items():
        a, b = wide(first[key]), wide(kernel[key])
        if a.shape != b.shape:
            made.faults.append(f"{key} has the shape {a.shape}, not {b.shape}")
            return
        scale = max(1.0, np.abs(b).max(initial=0.0))
        made.kernel = max(made.kernel, np.abs(a - b).max(initial=0.0) / scale)
        made.reference = max(made.reference, error(first[key], value))
        if not np.array_equal(a, wide(second[key])):
            made.faults.append(f"{key} of the second call differs")
    if not made.kernel <= from_kernels(drawn, convert):
        made.faults.append(f"{made.kernel:.2g} from the kernel")
    if not made.reference <= from_reference(drawn, convert):
        made.faults.append(f"{made.reference:.2g} from the reference")
