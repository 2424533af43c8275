"""Checks whether a program compiles for TPUs, with libtpu's compiler and no TPU.

`check_tpu` takes a function with example arguments, or a SavedModel; the command
`opwright-tpu-check` does the same. Both need opwright's extra `tpu`.
"""

from __future__ import annotations

import math
import os
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opwright_runtime.runs_on import runs_on
from opwright_runtime.tpu_check.findings import (
    CHIPS,
    Argument,
    Blocker,
    Comparison,
    Compilation,
    Difference,
    OpenShapeError,
    Output,
    TpuCheckError,
)
from opwright_runtime.tpu_check.remedies import remedy_for
from opwright_runtime.tpu_check.report import Report

if TYPE_CHECKING:
    from opwright_runtime.tpu_check import lowering

__all__ = [
    "CHIPS",
    "Argument",
    "Blocker",
    "Comparison",
    "Compilation",
    "Difference",
    "OpenShapeError",
    "Output",
    "Report",
    "TpuCheckError",
    "check_tpu",
]

DEFAULT_CHIPS = ("v5e", "v5p", "v6e")
DEFAULT_TIMEOUT = 300.0


def check_tpu(
    program: Callable[..., object] | str | os.PathLike[str],
    *args: Any,
    chips: str | Sequence[str] = DEFAULT_CHIPS,
    signature: str | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    compare: bool = False,
    notify: Callable[[str], None] | None = None,
    **kwargs: Any,
) -> Report:
    """Compiles a program for TPUs and reports the result.

    The function is traced and lowered in this process, as with `jit_compile=True`, but
    it is not run. libtpu compiles in a separate process, so that a crash of libtpu
    becomes a line of the report.

    Args:
        program: a `tf.function`, another callable that `tf.function` accepts, a Keras
            model, or the path of a SavedModel's folder or of a `.keras` file.
        *args: example arguments of the function: tensors, arrays, or `tf.TensorSpec`
            objects. Only their shapes and dtypes matter, and the values of plain Python
            arguments. For a model with one input, its shape or `tf.TensorSpec`. Without
            any, a `tf.function` is traced for the fixed shapes of its input_signature.
            Keras models and layers are called with `training=False`.
        chips: the TPUs for which to compile: keys of `CHIPS`, or one of them.
        signature: which of a SavedModel's signatures; by default "serving_default", or
            the only one.
        timeout: how many seconds libtpu may take for each chip.
        compare: whether to run the program too, eagerly, in a graph and compiled by XLA
            for the CPU, and to compare the values. The examples are tensors or arrays
            then. Variables keep their values. What XLA cannot compile is not compared.
        notify: called before each step with a short text.
        **kwargs: example arguments like `args`, by name. For a model, a shape or
            `tf.TensorSpec` for each input whose shape is not fixed. With
            `training=True`, a Keras model runs as in training.

    Raises:
        TpuCheckError: there is nothing to compile: libtpu is not installed, a chip or
            signature is unknown, a shape is not fixed.
    """
    import tensorflow as tf

    from opwright_runtime.tpu_check import compiler, lowering, outputs

    if isinstance(chips, Iterable) and not isinstance(chips, str):
        wanted: tuple[str, ...] = tuple(chips)
    else:
        wanted = (chips,)
    compiler.require(wanted)
    if not isinstance(timeout, (int, float)) or not 0 <= timeout < math.inf:
        raise TpuCheckError(f"timeout must be a number of seconds, not {timeout!r}")
    say = notify or (lambda step: None)
    traced = _trace(program, args, signature, kwargs, say)
    say("lowering to XLA")
    lowered = lowering.lower(traced)
    report = Report(
        traced.name,
        traced.arguments,
        chips=wanted,
        path=os.fspath(program) if isinstance(program, (str, os.PathLike)) else None,
        signature=traced.signature,
        training=traced.training,
        versions={"tensorflow": tf.__version__, "libtpu": compiler.libtpu_version()},
    )
    if compare:
        say("comparing values")
        found = _compared(program, traced, args, kwargs)
        # For the CPU, XLA may compile a program that has blockers: it knows the values.
        if isinstance(lowered, bytes) or found.errors["XLA"] is None:
            report = replace(report, comparison=found)
    if not isinstance(lowered, bytes):
        return replace(report, blockers=lowered)
    compilations = compiler.compile_each(lowered, wanted, timeout, say)
    ops, sizes = lowering.op_types(traced), lowering.sized_by_values(traced)
    return replace(
        report,
        padded_outputs=outputs.of_values(traced.function, list(traced.specs)),
        compilations=tuple(_describe_failure(one, ops, sizes) for one in compilations),
    )


def _compared(
    program: Callable[..., object] | str | os.PathLike[str],
    traced: lowering.Traced,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
) -> Comparison:
    from opwright_runtime.tpu_check import comparison, lowering

    return comparison.compare(
        comparison.Program(
            None if isinstance(program, (str, os.PathLike)) else program,
            traced.function,
            args,
            kwargs,
            lambda op: lowering.place(traced, op),
        )
    )


def _trace(
    program: Callable[..., object] | str | os.PathLike[str],
    args: tuple[object, ...],
    signature: str | None,
    kwargs: Mapping[str, object],
    say: Callable[[str], None],
) -> lowering.Traced:
    from opwright_runtime.tpu_check import inputs, lowering

    path = Path(program) if isinstance(program, (str, os.PathLike)) else None
    if path is not None and path.suffix != ".keras":
        say("reading the SavedModel")
        return lowering.from_saved_model(path, signature, args, kwargs)
    if signature is not None:
        raise TpuCheckError("only a SavedModel has signatures")
    if path is not None:
        say("reading the Keras model")
        return lowering.from_keras_file(path, args, kwargs)
    if not callable(program):
        raise TpuCheckError(
            "the program must be a function, a Keras model, or the path of a SavedModel"
            f" or .keras file, not {reprlib.repr(program)}"
        )
    say("tracing")
    declared = inputs.of_keras_model(program)
    given = args if declared else (*args, *kwargs.values())
    inputs.check_model_call(lowering.name_of(program), program, declared, given)
    mode, others = inputs.call_mode(program, args, kwargs)
    # Structures of inputs, and other arguments of a call, are passed on as they are.
    if declared is None or len(args) > 1 or (args and (others or len(declared) > 1)):
        return lowering.from_function(program, args, kwargs)
    specs = inputs.fixed(lowering.name_of(program), declared, args, others)
    return lowering.from_keras_model(program, specs, mode)


#: What libtpu says of sizes that it does not support. It may die of others.
_SIZES = re.compile(r"bounded|dynamic|compiler died", re.IGNORECASE)


def _describe_failure(
    compilation: Compilation, ops: Sequence[str], sizes: Sequence[str] = ()
) -> Compilation:
    """Adds to an error the ops that may be its cause, and what to write instead.

    These are the ops whose own example does not compile for the chip, and those that
    make `sizes` which values decide.
    """
    if compilation.error is None:
        return compilation
    chip = compilation.chip
    rows = {op: runs_on(op).reasons for op in ops}
    # Ops that XLA itself cannot compile are left out, because they do not reach libtpu.
    by_themselves = [
        f"\n{op} does not compile for {chip} by itself: {row[chip]}"
        for op, row in rows.items()
        if row["XLA"] is None and row[chip] is not None
    ]
    hint = ""
    if sizes and _SIZES.search(compilation.error):
        hint = (
            "\nlibtpu takes sizes that values decide in some ops, and one of them in a "
            f"tensor. Here they come from {', '.join(sizes)}: pad to a fixed size "
            "there, with a mask"
        )
    return replace(
        compilation,
        error="".join([compilation.error, *by_themselves, hint]),
        remedy=remedy_for(compilation.error),
    )
