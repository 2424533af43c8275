"""Reads models of every kind as SavedModels."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import tensorflow as tf
from google.protobuf import text_format
from google.protobuf.message import DecodeError

from opwright_runtime.convert import graphs, saved_models
from opwright_runtime.convert.errors import ConvertError

Model: TypeAlias = Any
"""A path, a Keras model, a function of TensorFlow, or a GraphDef."""
# Objects of TensorFlow and Keras, which have no types.
_Graph: TypeAlias = Any

FILES = (
    "the folder of a SavedModel, a .keras or .h5 file, a frozen GraphDef (.pb) or a "
    "meta graph (.meta)"
)
KINDS = f"{FILES}; or a Keras model, a tf.function or a GraphDef"

# How many names of tensors an error has.
_SHOWN = 12

_REFUSALS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    tf.errors.OpError,
)


@dataclass(frozen=True)
class Source:
    """A model as a SavedModel.

    Attributes:
        name: for messages.
        folder: of the SavedModel.
        frozen: whether the model was given as a GraphDef.
        notes: what the report says about reading it.
        given: the folder that this one was copied from, if it is a copy.
    """

    name: str
    folder: Path
    frozen: bool = False
    notes: tuple[str, ...] = ()
    given: Path | None = None

    @property
    def original(self) -> Path:
        """The folder with all that the model has besides its graph."""
        return self.given or self.folder


@dataclass(frozen=True)
class Tensors:
    """The inputs and outputs of a graph, as names of its tensors."""

    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()


@contextmanager
def opened(
    model: Model,
    tensors: Tensors,
    shapes: Mapping[str, Model] | None = None,
    *,
    dropout_off: bool = False,
) -> Iterator[Source]:
    """A model of any kind as a SavedModel. It may lie in a temporary folder.

    Args:
        model: one of `KINDS`.
        tensors: inputs and outputs of a graph. By default, its placeholders and the
            nodes that no other node reads.
        shapes: TensorSpecs for a function that was not traced.
        dropout_off: whether its recurrent nodes apply no dropout in the SavedModel.

    Raises:
        ConvertError: it is of no known kind, or damaged.
    """
    with _saved(model, tensors, shapes) as source:
        if not dropout_off:
            yield source
            return
        with tempfile.TemporaryDirectory(prefix="opwright-convert-") as folder:
            target = Path(folder, "model")
            saved_models.without_dropout(source.folder, target)
            yield replace(source, folder=target, given=source.folder)


@contextmanager
def _saved(
    model: Model, tensors: Tensors, shapes: Mapping[str, Model] | None
) -> Iterator[Source]:
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        if saved_models.is_saved_model(path):
            _refuse_tensors(tensors, f"{path} is a SavedModel", path)
            yield Source(str(path), path)
            return
    with tempfile.TemporaryDirectory(prefix="opwright-convert-") as folder:
        target = Path(folder, "model")
        try:
            made = _save(model, target, tensors, shapes)
        except ConvertError:
            raise
        except _REFUSALS as error:
            named = isinstance(model, (str, os.PathLike))
            name = os.fspath(model) if named else "the model"
            raise ConvertError(f"{name} cannot be read: {_short(error)}") from error
        yield made


def _save(
    model: Model, target: Path, tensors: Tensors, shapes: Mapping[str, Model] | None
) -> Source:
    """Saves a model."""
    if isinstance(model, (str, os.PathLike)):
        return _save_file(Path(model), target, tensors)
    if isinstance(model, tf.compat.v1.GraphDef):
        _save_graph(model, target, tensors)
        return Source("GraphDef", target, frozen=True)
    _refuse_tensors(tensors, "the model is none")
    if hasattr(model, "export") and hasattr(model, "layers"):
        return Source(str(model.name), target, notes=_export(model, target))
    if callable(model):
        return Source(_save_function(model, target, shapes), target)
    raise ConvertError(f"model must be {KINDS}, not {type(model).__name__}")


def _refuse_tensors(tensors: Tensors, what: str, folder: Path | None = None) -> None:
    """Refuses names of tensors for a model that is no graph, because it has its own.

    Raises:
        ConvertError: there are such names.
    """
    if not tensors.inputs and not tensors.outputs:
        return
    flag = "inputs= (--input)" if tensors.inputs else "outputs= (--output)"
    todo = "leave it out"
    if folder is not None:
        known = ", ".join(saved_models.signatures_of(saved_models.read(folder)))
        todo += f", or choose a signature with signature= (--signature): {known}"
    raise ConvertError(
        f"{flag} is for graphs (.pb and .meta files, GraphDefs), and {what}; {todo}"
    )


def _save_file(path: Path, target: Path, tensors: Tensors) -> Source:
    if not path.exists():
        raise ConvertError(f"{path} does not exist; a path must be {FILES}")
    if path.suffix in (".keras", ".h5", ".hdf5"):
        _refuse_tensors(tensors, f"{path} is a file of Keras")
        return Source(
            str(path), target, notes=_export(_load_keras(path, target.parent), target)
        )
    if path.suffix == ".meta":
        _save_checkpoint(path, target, tensors)
        return Source(str(path), target)
    if path.suffix == ".pb":
        graph = tf.compat.v1.GraphDef()
        try:
            graph.ParseFromString(path.read_bytes())
        except DecodeError as error:
            raise ConvertError(f"{path} is damaged, or no GraphDef: {error}") from error
        _save_graph(graph, target, tensors)
        return Source(str(path), target, frozen=True)
    raise ConvertError(f"{path} is of no known kind; a path must be {FILES}")


def _export(model: Model, target: Path) -> tuple[str, ...]:
    """Saves a Keras model for inference, with one op for each recurrent layer.

    Returns:
        Notes for the report.
    """
    if type(model).__module__.partition(".")[0] == "tf_keras":
        # It prints a summary.
        with contextlib.redirect_stdout(io.StringIO()):
            model.export(str(target))
        return ()
    from opwright_runtime.rnn import keras_layers, keras_models

    kinds = keras_layers.REPLACEMENTS
    loops = [one for one in model._flatten_layers() if type(one) in kinds]
    copy = model
    notes: tuple[str, ...] = ()
    if loops:
        try:
            copy = keras_models.with_states(model)
        except Exception as error:
            # Layers of others raise errors of any class. The model exports as it is.
            notes = (_kept_loops(len(loops), error),)
    with keras_layers.kernels_for_any_steps():
        copy.export(str(target), verbose=False)
    return notes


def _kept_loops(count: int, error: Exception) -> str:
    return (
        f"{count} layers of keras.layers keep their loops, because the model cannot be "
        f"copied ({_short(error)}); layers of opwright.keras need no copy"
    )


def _load_keras(path: Path, folder: Path) -> _Graph:
    """Loads a file with the Keras that wrote it: Keras 3, or tf_keras.

    Args:
        path: the file.
        folder: for temporary files.
    """
    if not zipfile.is_zipfile(path):
        _check_has_model(path)
    if not _is_of_keras_2(path):
        return _load_keras_3(path)
    try:
        tf_keras: Any = importlib.import_module("tf_keras")
    except ModuleNotFoundError:
        try:
            return _load_keras_3(path)
        except Exception as error:
            # Keras 3 lacks layers and options of Keras 2.
            raise ConvertError(
                f"{path} is a file of Keras 2, which needs tf_keras; pip install "
                f"tf_keras (Keras 3: {_short(error)})"
            ) from error
    v1 = tf_keras.src.layers.rnn
    known = {
        "CuDNNGRU": v1.cudnn_gru.CuDNNGRU,
        "CuDNNLSTM": v1.cudnn_lstm.CuDNNLSTM,
    }
    if zipfile.is_zipfile(path):
        path = _with_registered_names(path, folder / "named.keras", known)
    with tf_keras.utils.custom_object_scope(known):
        return tf_keras.models.load_model(path, compile=False)


def _check_has_model(path: Path) -> None:
    """Refuses an HDF5 file that Keras wrote without a model.

    Raises:
        ConvertError: it has no model.
    """
    if "model_config" not in _attributes(path):
        raise ConvertError(
            f"{path} has no model, and may have weights only; make the model in "
            "Python, call its load_weights with this file, and convert the model, or "
            'save it with model.save("model.keras")'
        )


def _attributes(path: Path) -> dict[str, object]:
    """The attributes of an HDF5 file.

    Raises:
        ConvertError: it is no such file.
    """
    h5py: Any = importlib.import_module("h5py")
    if not h5py.is_hdf5(path):
        raise ConvertError(f"{path} is damaged, or no file of Keras; save it again")
    with h5py.File(path) as file:
        return dict(file.attrs)


def _with_registered_names(
    path: Path, target: Path, known: Mapping[str, object]
) -> Path:
    """A copy of a .keras file from which tf_keras loads these layers.

    It saves the layers under names by which it does not find them again.
    """

    def named(config: object) -> object:
        if isinstance(config, list):
            return [named(one) for one in config]
        if not isinstance(config, dict):
            return config
        changed = {key: named(one) for key, one in config.items()}
        name = changed.get("class_name")
        if isinstance(name, str) and name in known:
            changed["registered_name"] = name
        return changed

    with zipfile.ZipFile(path) as source, zipfile.ZipFile(target, "w") as copy:
        for one in source.infolist():
            data = source.read(one)
            if one.filename == "config.json":
                data = json.dumps(named(json.loads(data))).encode()
            copy.writestr(one.filename, data)
    return target


def _load_keras_3(path: Path) -> _Graph:
    keras: Any = importlib.import_module("keras")
    # It registers the layers that files name.
    importlib.import_module("opwright_runtime.rnn.keras_layers")
    known = {} if path.suffix == ".keras" else _operations(keras)
    return keras.models.load_model(path, compile=False, custom_objects=known)


def _operations(keras: _Graph) -> dict[str, type]:
    """Keras's operations that are no layers.

    The mask of an Embedding or Masking layer is made by such ones. Keras writes their
    names into an .h5 file, and does not know them when it reads the file.
    """
    found, left = {}, [keras.Operation]
    while left:
        for kind in left.pop().__subclasses__():
            left.append(kind)
            is_op = kind.__module__.startswith("keras.src.ops.")
            if is_op and not hasattr(keras.layers, kind.__name__):
                found[kind.__name__] = kind
    return found


def _is_of_keras_2(path: Path) -> bool:
    """Whether Keras 2 wrote the file. Keras 3 refuses options of its layers."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if "metadata.json" not in archive.namelist():
                return False
            metadata = json.loads(archive.read("metadata.json"))
        version = metadata.get("keras_version")
    else:
        version = _attributes(path).get("keras_version")
    text = version.decode() if isinstance(version, bytes) else str(version or "")
    return text.startswith(("1.", "2."))


def _save_function(
    model: Model, target: Path, shapes: Mapping[str, Model] | None
) -> str:
    """Saves a function with the variables that it uses."""
    function = model if hasattr(model, "get_concrete_function") else None
    traced = model if hasattr(model, "structured_input_signature") else None
    if traced is None:
        if function is None:
            function = tf.function(model, autograph=False)
        traced = function.get_concrete_function(**dict(shapes or {}))
    module: Any = tf.Module()
    module.variables_of_function = [*traced.graph.variables]
    module.serve = traced
    tf.saved_model.save(module, str(target), signatures=traced)
    name = getattr(model, "name", None) or getattr(model, "__name__", "function")
    return name.decode() if isinstance(name, bytes) else str(name)


def _save_graph(graph: _Graph, target: Path, tensors: Tensors) -> None:
    if any(node.op in ("VariableV2", "VarHandleOp") for node in graph.node):
        raise ConvertError(
            "the GraphDef has variables without values; freeze it first, or give the "
            ".meta file of its checkpoint"
        )
    graphs.refuse_recursion(graph, "the GraphDef")
    with tf.Graph().as_default() as made:
        tf.graph_util.import_graph_def(graph, name="")
        with _session(made) as session:
            _build(session, made, target, tensors)


def _save_checkpoint(path: Path, target: Path, tensors: Tensors) -> None:
    meta = _meta_graph(path)
    graphs.refuse_recursion(meta.graph_def, str(path))
    with tf.Graph().as_default() as made:
        saver = tf.compat.v1.train.import_meta_graph(meta, clear_devices=True)
        if saver is None:
            raise ConvertError(f"{path} has no saver, so that nothing is restored")
        with _session(made) as session:
            saver.restore(session, str(path.with_suffix("")))
            _build(session, made, target, tensors)


def _meta_graph(path: Path) -> _Graph:
    """The MetaGraphDef of a file, which may be text."""
    data, meta = path.read_bytes(), tf.compat.v1.MetaGraphDef()
    try:
        meta.ParseFromString(data)
        return meta
    except DecodeError:
        pass
    try:
        return text_format.Parse(data.decode(), tf.compat.v1.MetaGraphDef())
    except (UnicodeDecodeError, text_format.ParseError) as error:
        raise ConvertError(
            f"{path} is damaged, or no meta graph: {_short(error)}; save it again"
        ) from error


def _session(graph: _Graph) -> _Graph:
    config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    return tf.compat.v1.Session(graph=graph, config=config)


def _build(session: _Graph, graph: _Graph, target: Path, tensors: Tensors) -> None:
    inputs = [_tensor(graph, name) for name in tensors.inputs or _placeholders(graph)]
    outputs = [_tensor(graph, name) for name in tensors.outputs or _ends(graph)]
    if not outputs:
        raise ConvertError(
            "the graph has no outputs; name them with outputs= (--output)"
        )
    builder = tf.compat.v1.saved_model.Builder(str(target))
    infos = [
        {_key(one): tf.compat.v1.saved_model.build_tensor_info(one) for one in several}
        for several in (inputs, outputs)
    ]
    signature = tf.compat.v1.saved_model.build_signature_def(
        *infos, "tensorflow/serving/predict"
    )
    builder.add_meta_graph_and_variables(
        session, ["serve"], {"serving_default": signature}, clear_devices=True
    )
    builder.save()


def _key(tensor: _Graph) -> str:
    """A name for a signature, without the index of a first output."""
    name, _, index = tensor.name.partition(":")
    return name.replace("/", "_") if index == "0" else f"{name}_{index}"


def _tensor(graph: _Graph, name: str) -> _Graph:
    try:
        return graph.get_tensor_by_name(name if ":" in name else f"{name}:0")
    except (KeyError, ValueError) as error:
        known = [*_placeholders(graph), *_ends(graph)]
        shown = ", ".join(repr(one.removesuffix(":0")) for one in known[:_SHOWN])
        more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
        raise ConvertError(
            f"the graph has no tensor {name!r}; its placeholders, and the nodes that "
            f"no other reads, are {shown or 'none'}{more}"
        ) from error


def _placeholders(graph: _Graph) -> list[str]:
    return [f"{op.name}:0" for op in graph.get_operations() if op.type == "Placeholder"]


def _ends(graph: _Graph) -> list[str]:
    """The outputs that nothing reads, of the nodes that compute something."""
    quiet = ("Const", "Placeholder", "NoOp", "Assert", "SaveV2", "VariableV2")
    ends = []
    for op in graph.get_operations():
        unread = op.outputs and not any(out.consumers() for out in op.outputs)
        if unread and op.type not in quiet:
            ends.append(op.outputs[0].name)
    return ends


def _short(error: BaseException) -> str:
    """The text of an error of TensorFlow, without its trace."""
    text = str(error).strip() or type(error).__name__
    return " ".join(text.split())[:600]
