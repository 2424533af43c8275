"""The inputs that a program declares, and the shapes that the caller gives them.

They are compared before the program is loaded or traced, because that takes seconds.
"""

from __future__ import annotations

import difflib
import inspect
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from opwright_runtime.tpu_check.findings import (
    InputNamesError,
    MissingInputError,
    OpenShapeError,
    TpuCheckError,
    no_saved_model,
)

#: Arguments of `check_tpu` itself, for which a wrong name may stand.
_OPTIONS = ("chips", "signature", "timeout", "notify")

#: Names that Keras gives to inputs without one, with a number from the second on.
_UNNAMED = re.compile(r"(?:keras_tensor|input_layer|input)(?:_(\d+))?")

#: What makes a dense tensor from another kind of tensor.
_DENSE = {
    "RaggedTensor": "its method to_tensor(shape=...)",
    "SparseTensor": "tf.sparse.to_dense",
}

#: An example of an input: an array, a tensor, a TensorSpec, or a shape.
Example: TypeAlias = Any

#: A function, or a Keras model or layer.
Function: TypeAlias = Any

#: By name the shape and dtype that a program declares.
Inputs = Mapping[str, tf.TensorSpec]


def no_signature(folder: Path, name: str, signatures: Iterable[str]) -> TpuCheckError:
    """The error for a signature that a SavedModel lacks."""
    known = ", ".join(sorted(signatures))
    if known:
        advice = f"there are: {known}; choose one with --signature or signature="
    else:
        advice = (
            "there are none; write the model with model.export, or give "
            "tf.saved_model.save signatures"
        )
    return TpuCheckError(f"{folder}: no signature {name!r}; {advice}")


def of_signature(folder: Path, name: str | None) -> tuple[str, Inputs | None]:
    """The chosen signature of a SavedModel, and its inputs, None if they are not known.

    It reads the file's list of signatures, and no graph.
    """
    if not tf.saved_model.contains_saved_model(str(folder)):
        raise no_saved_model(folder)
    path = folder / "saved_model.pb"
    if not path.exists():  # The other form is text, which few models have.
        return name or "serving_default", None
    try:
        graphs = saved_model_pb2.SavedModel.FromString(path.read_bytes()).meta_graphs
    except Exception as error:
        raise TpuCheckError(f"{path} is damaged: {error}") from error
    signatures = {
        key: signature
        for graph in graphs
        for key, signature in graph.signature_def.items()
        if not key.startswith("__")  # What TensorFlow runs when it loads the model.
    }
    chosen = name or "serving_default"
    if name is None and len(signatures) == 1:
        (chosen,) = signatures
    if chosen not in signatures:
        raise no_signature(folder, chosen, signatures)
    return chosen, {
        key: tf.TensorSpec(_sizes(info.tensor_shape), info.dtype, key)
        for key, info in signatures[chosen].inputs.items()
        if info.name  # A sparse tensor has no single one.
    }


def _sizes(shape: Example) -> tf.TensorShape:
    """The sizes in a message; its class has no types for type checkers."""
    return tf.TensorShape(shape)


def of_keras_model(program: Function) -> Inputs | None:
    """Of a Keras model that knows its inputs; None of anything else."""
    modules = (sys.modules.get(name) for name in ("keras", "tf_keras"))
    classes = tuple(module.Model for module in modules if module is not None)
    if not isinstance(program, classes):
        return None
    try:
        inputs = program.inputs
    except (AttributeError, ValueError):  # It is built by its first call.
        return None
    return {
        one.name: tf.TensorSpec(one.shape, one.dtype, one.name) for one in inputs or ()
    } or None


def call_mode(
    program: object, args: tuple[object, ...], given: Mapping[str, object]
) -> tuple[dict[str, bool], dict[str, object]]:
    """The argument `training` for the call of a Keras layer, and the named arguments.

    It is False by default. Without the argument, a layer like RandomFlip runs as in
    training, and makes the layers in the same model do so.
    """
    others = dict(given)
    if not _takes_training(program) or _has_training(program, args):
        return {}, others
    training = others.pop("training", False)
    if not isinstance(training, bool):
        raise TpuCheckError(f"training must be True or False, not {training!r}")
    return {"training": training}, others


def _takes_training(program: object) -> bool:
    if "training" in (of_keras_model(program) or ()):  # The name of an input.
        return False
    # Every layer of Keras 3 accepts it, and passes it on to the layers that it calls.
    if _is_layer(program, "keras"):
        return True
    return _is_layer(program, "tf_keras") and (
        "training" in _signature(program).parameters
    )


def _has_training(layer: object, args: tuple[object, ...]) -> bool:
    """Whether `training` is among the arguments without a name."""
    try:
        given = _signature(layer).bind_partial(*args).arguments
    except TypeError:  # `check_call` says what is wrong.
        return False
    return "training" in given


def _signature(layer: Function) -> inspect.Signature:
    return inspect.signature(layer.call)


def _is_keras(program: object) -> bool:
    return _is_layer(program, "keras") or _is_layer(program, "tf_keras")


def _is_layer(program: object, package: str) -> bool:
    """Whether it is a layer of a version of Keras; models are layers, too."""
    module = sys.modules.get(package)
    return module is not None and isinstance(program, module.layers.Layer)


def fixed(
    program: str, inputs: Inputs, args: Sequence[Example], given: Mapping[str, Example]
) -> dict[str, tf.TensorSpec]:
    """The declared inputs, with the shapes that were given.

    Args:
        program: its name, for errors.
        inputs: what it declares.
        args: a shape or an example of the only input.
        given: the same by name.

    Raises:
        OpenShapeError: a shape is not fixed.
        TpuCheckError: an unknown name, or a shape or dtype that does not fit.
    """
    names = ", ".join(inputs) or "none"
    _check_one_list(program, args)
    if args:
        if given or len(args) > 1 or len(inputs) != 1:
            raise TpuCheckError(f"{program} needs the names of its inputs: {names}")
        given = {next(iter(inputs)): args[0]}
    given = _own_names(inputs, given)
    unknown = [name for name in given if name not in inputs]
    if unknown:
        raise _no_input(program, unknown[0], names)
    specs = {
        name: _compatible(program, spec, given.get(name, spec))
        for name, spec in inputs.items()
    }
    if is_open := _open_shapes(specs):
        raise OpenShapeError(is_open)
    return specs


def _open_shapes(specs: Inputs) -> dict[str, tuple[int | None, ...] | None]:
    """The shapes that are not fixed, by the name of the input."""
    return {
        name: None if spec.shape.rank is None else tuple(spec.shape.as_list())
        for name, spec in specs.items()
        if not spec.shape.is_fully_defined()
    }


def _own_names(inputs: Inputs, given: Mapping[str, Example]) -> Mapping[str, Example]:
    """The given inputs, with the names that the program has for inputs without one.

    Keras names such inputs, in another way if it loads the model. Their numbers are in
    the order of the inputs. Where there is one such input, it may have any name.
    """
    own = [name for name in inputs if _UNNAMED.fullmatch(name) and name not in given]
    theirs = [name for name in given if name not in inputs]
    if len(inputs) == len(own) == len(theirs) == 1:
        value = given[theirs[0]]
        fits = hasattr(value, "shape") or _first_shape([value]) is not None
        return {own[0]: value} if fits else given
    matches = [match for name in theirs if (match := _UNNAMED.fullmatch(name))]
    if len(own) != len(matches):
        return given
    matches.sort(key=lambda match: int(match[1] or 0))
    renamed = {match[0]: name for match, name in zip(matches, own, strict=True)}
    return {renamed.get(name, name): value for name, value in given.items()}


def _compatible(
    program: str, declared: tf.TensorSpec, example: Example
) -> tf.TensorSpec:
    """An example's shape, and its dtype if it has one."""
    shape = tf.TensorShape(getattr(example, "shape", example))
    dtype = getattr(example, "dtype", declared.dtype)
    spec = tf.TensorSpec(shape, dtype, declared.name)
    fits = declared.shape.is_compatible_with(shape)
    if spec.dtype != declared.dtype or not fits:
        raise TpuCheckError(
            f"{program}: input {declared.name!r} is {_shown(declared)},"
            f" not {_shown(spec)}"
        )
    return spec


def _shown(spec: tf.TensorSpec) -> str:
    shape = "unknown" if spec.shape.rank is None else tuple(spec.shape.as_list())
    return f"{spec.dtype.name} of shape {shape}"


def check_model_call(
    name: str, program: Function, declared: Inputs | None, given: Sequence[Example]
) -> None:
    """Raises `TpuCheckError` if shapes stand where a layer or model takes none.

    Args:
        name: of the program, for errors.
        program: any program; only layers and models of Keras are looked at.
        declared: its inputs, if it knows them.
        given: the arguments of the call without a name.
    """
    if not given or not _is_keras(program):
        return
    _check_one_list(name, given, in_spec=declared is None)
    if declared is not None and len(declared) > 1:
        parts = tf.nest.flatten(given[0])
        # The structure of its inputs, with tensors in it, is passed on as it is.
        if hasattr(given[0], "shape") or any(
            one is None or type(one) is int for one in parts
        ):
            raise InputNamesError(name, _shapes_by_name(declared, given))
    elif declared is None and (shape := _first_shape(given)) is not None:
        raise TpuCheckError(
            f"{name} does not know its inputs: in place of {shape} give"
            f" {_spec_text(shape)}, with the dtype of the input"
        )


def _check_one_list(
    name: str, given: Sequence[Example], *, in_spec: bool = False
) -> None:
    """Raises `TpuCheckError` if the sizes of a shape are arguments of their own."""
    if len(given) > 1 and all(type(one) is int for one in given):
        shape = list(given)
        wanted = f"in {_spec_text(shape)}" if in_spec else shape
        raise TpuCheckError(f"{name}: give the shape as one list, {wanted}")


def _shapes_by_name(
    declared: Inputs, given: Sequence[Example]
) -> dict[str, tuple[int | None, ...] | None]:
    """A shape for each input, from what was given where that fits."""
    shapes: dict[str, tuple[int | None, ...] | None] = {}
    if len(given) == 1 and isinstance(given[0], (list, tuple)):
        given = given[0]
    elif len(given) == 1 and isinstance(given[0], Mapping):
        given = [given[0].get(key) for key in declared]
    fits = len(given) == len(declared)
    for place, (key, spec) in enumerate(declared.items()):
        example = given[place] if fits else None
        shape = example if _first_shape([example]) else getattr(example, "shape", None)
        own = spec.shape
        if shape is not None and own.is_compatible_with(tf.TensorShape(shape)):
            own = tf.TensorShape(shape)
        shapes[key] = None if own.rank is None else tuple(own.as_list())
    return shapes


def _spec_text(shape: Example, dtype: str = "tf.float32") -> str:
    """How to write an example of a shape."""
    sizes = "..." if tf.TensorShape(shape).rank is None else list(shape)
    return f"tf.TensorSpec({sizes}, {dtype})"


def _call_signature(function: Function) -> inspect.Signature | None:
    """The parameters of a call, without `self`; None if Python does not know them."""
    called: Function = getattr(function, "python_function", function)
    if callable(getattr(function, "call", None)):
        called = function.call  # Of a Keras model or layer.
    try:
        return inspect.signature(called)
    except (TypeError, ValueError):
        return None


def check_call(
    name: str,
    function: Function,
    args: tuple[Example, ...],
    kwargs: Mapping[str, Example],
) -> None:
    """Raises `TpuCheckError` if a function cannot be called with these arguments."""
    if (signature := _call_signature(function)) is None:
        return
    parameters = signature.parameters
    others = ("training", "mask") if _is_keras(function) else ()
    listed = [
        key
        for key, one in parameters.items()
        if key not in others and not (others and one.kind is one.VAR_KEYWORD)
    ]
    names = ", ".join(listed) or "none"
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    unknown = [key for key in kwargs if key not in parameters]
    if unknown and not takes_any:
        raise _no_input(name, unknown[0], names)
    try:
        given = signature.bind_partial(*args, **kwargs).arguments
        # An input_signature takes tensors only, so None stands for no default.
        signed = [*parameters][: len(getattr(function, "input_signature", None) or ())]
        missing = [
            key
            for key, one in parameters.items()
            if key not in given
            and (one.default is one.empty or (one.default is None and key in signed))
            and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        ]
        if missing and unknown and others:  # Keras refuses most named arguments.
            raise _no_input(name, unknown[0], names)
        if missing:
            raise MissingInputError(name, missing, names)
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TpuCheckError(f"{name}: {error}; its inputs are: {names}") from None


def _no_input(program: str, name: str, names: str) -> TpuCheckError:
    """The error for an unknown name of an input."""
    meant = difflib.get_close_matches(name, _OPTIONS, n=1)
    hint = f". Did you mean check_tpu's argument {meant[0]}?" if meant else ""
    return TpuCheckError(f"{program} has no input {name!r}; there are: {names}{hint}")


def of_input_signature(function: Function) -> tuple[Example, ...]:
    """The examples that the input_signature of a tf.function has; () without one.

    Raises:
        OpenShapeError: it leaves a shape open.
    """
    signature = getattr(function, "input_signature", None)
    called = _call_signature(function)
    if not signature or called is None:
        return ()
    if not all(isinstance(one, tf.TensorSpec) for one in signature):
        return ()
    specs = dict(zip(called.parameters, signature, strict=False))
    if is_open := _open_shapes(specs):
        dtypes = {name: specs[name].dtype.name for name in is_open}
        raise OpenShapeError(is_open, dtypes)
    return tuple(signature)


def check_dense(
    name: str,
    function: Function,
    args: tuple[Example, ...],
    kwargs: Mapping[str, Example],
) -> None:
    """Raises `TpuCheckError` for ragged and sparse tensors, whose sizes are open."""
    if (called := _call_signature(function)) is None:
        return
    for argument, value in called.bind(*args, **kwargs).arguments.items():
        for one in tf.nest.flatten(value):
            kind = type(one).__name__.removesuffix("Spec")
            if maker := _DENSE.get(kind):
                raise TpuCheckError(
                    f"{name}: argument {argument!r} is a {kind}, which has no fixed"
                    " shape, and a TPU program takes fixed shapes: give a dense tensor,"
                    f" which {maker} makes on the host"
                )


def check_examples(
    name: str, args: tuple[Example, ...], kwargs: Mapping[str, Example]
) -> None:
    """Raises `TpuCheckError` if a shape stands where a function needs an example.

    A list of numbers is a Python value of a function, so it may accompany a tensor.
    """
    given = [*args, *kwargs.values()]
    if any(hasattr(one, "dtype") for one in tf.nest.flatten(given)):
        return
    if hint := shape_hint(given):
        raise TpuCheckError(f"{name}: {hint}")


def shape_hint(given: Sequence[Example]) -> str:
    """What to write in place of the first shape among examples; "" if there is none."""
    if (shape := _first_shape(given)) is None:
        return ""
    return (
        f"{shape} is no example of a tensor: for a function give"
        f" {_spec_text(shape, 'dtype')}, such as tf.float32"
    )


def _first_shape(given: Sequence[Example]) -> Example:
    """The first shape among examples; None if there is none."""
    for one in given:
        if isinstance(one, tf.TensorShape) or (
            isinstance(one, (list, tuple))
            and one
            and all(size is None or type(size) is int for size in one)
        ):
            return one
    return None
