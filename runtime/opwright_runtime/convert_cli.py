"""The command line: `opwright-convert`.

It imports TensorFlow only when a conversion runs, so help comes at once.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opwright_notation.tensorflow_log import hidden_log
from opwright_runtime._extras import how_to_install

__all__ = ["command", "main"]

_EPILOG = """\
typical runs:
  opwright-convert check gpu_model
  opwright-convert plain gpu_model portable
  opwright-convert onnx model.keras model.onnx
  opwright-convert tflite gpu_model model.tflite --batch 1
  opwright-convert onnx frozen.pb model.onnx --input x --output y

exit status: 0 done, 1 the model is refused, 2 a wrong call
"""

_DIED = """\
{} ended the process while it read or ran the model: the model is damaged, or asks for \
too much memory; nothing was written"""
# Arguments of functions, and the flags for them: `overwrite=True (--overwrite)`.
_ARGUMENTS = re.compile(r"\w+=\S*(?: and \w+=\S*)? \((?P<flags>--[^()]+)\)")
_SHAPE = re.compile(r"(?P<name>[^=]+)=(?P<dims>(\d+|none)(,(\d+|none))*)")


def command() -> int:
    """`opwright-convert`: runs `main` in a process of its own.

    A damaged model may end it, because TensorFlow reads and runs the model.
    """
    options = _parser().parse_args()
    temporary = tempfile.mkdtemp(prefix="opwright-convert-")
    pid = os.fork()
    if not pid:
        tempfile.tempdir = temporary
        return main()
    try:
        status = os.waitstatus_to_exitcode(_waited(pid))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    if status >= 0:
        return status
    if options.command != "check":
        # The package imports TensorFlow.
        with hidden_log():
            files = importlib.import_module("opwright_runtime.convert.files")
        files.remove_rest(Path(options.target), pid)
    _say(_DIED.format(signal.Signals(-status).name))
    return 1


def _waited(pid: int) -> int:
    while True:
        try:
            return os.waitpid(pid, 0)[1]
        except KeyboardInterrupt:
            # The other process has it too, and ends.
            continue


def main(arguments: Sequence[str] | None = None) -> int:
    """Converts one model; returns 0, or 1 if it is refused, or 2 for a wrong call."""
    options = _parser().parse_args(arguments)
    try:
        from rich.console import Console
    except ModuleNotFoundError:
        _say(f"needs rich, which is not installed; {how_to_install('convert')}")
        return 2
    try:
        # A descriptor of its own: hidden_log replaces stderr.
        with (
            os.fdopen(os.dup(2), "w", errors="backslashreplace") as terminal,
            Console(file=terminal).status("starting TensorFlow") as status,
            _quiet(),
        ):
            outcome = _run(options, status.update)
    except KeyboardInterrupt:
        _say("interrupted")
        return 130
    except Exception as error:
        # What a damaged model makes TensorFlow raise is of any class.
        convert = importlib.import_module("opwright_runtime.convert")
        known = isinstance(error, convert.ConvertError)
        text = str(error) if known else f"{type(error).__name__}: {error}"
        _say(with_flags_alone(" ".join(text.split()))[:2000])
        return 1
    return _print(outcome, as_json=options.json)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hides the warnings of TensorFlow and other packages about their own calls."""
    logger = logging.getLogger("tensorflow")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            for category in (DeprecationWarning, FutureWarning):
                warnings.simplefilter("ignore", category)
            yield
    finally:
        logger.setLevel(before)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="opwright-convert",
        description=(
            "Converts recurrent models of GPUs (CudnnRNN ops) to plain TensorFlow, ONNX"
            " or TFLite, and compares the numbers with those of the source."
        ),
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    shared = _shared()
    for name, text in (
        ("plain", "a SavedModel for any TensorFlow"),
        ("onnx", "an ONNX file"),
        ("tflite", "a TFLite file of builtin operators"),
    ):
        one = commands.add_parser(name, help=f"write {text}", parents=[shared])
        one.add_argument("target", metavar="TARGET", help="what to write")
        _add_writing(one)
        if name == "onnx":
            one.add_argument("--opset", type=int, default=17, help="default: 17")
        if name == "tflite":
            _add_tflite(one)
    commands.add_parser(
        "check",
        help="say which ops keep a model from which runtime; writes nothing",
        parents=[shared],
    )
    return parser


def _shared() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "model",
        metavar="MODEL",
        help="SavedModel folder, .keras, .h5, frozen .pb, or .meta of a checkpoint",
    )
    shared.add_argument("--signature", metavar="NAME", help="which one to convert")
    shared.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="TENSOR",
        help="an input of a graph; repeatable (default: its placeholders)",
    )
    shared.add_argument(
        "--output",
        action="append",
        default=[],
        metavar="TENSOR",
        help="an output of a graph; repeatable (default: what nothing reads)",
    )
    shared.add_argument(
        "--dropout", choices=["off"], help="convert training nodes as for inference"
    )
    shared.add_argument("--json", action="store_true", help="print JSON")
    return shared


def _add_writing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shape",
        type=_shape,
        action="append",
        default=[],
        metavar="NAME=DIMS",
        help="another shape for an input, as x=1,none,8; repeatable; "
        "plain keeps those of a SavedModel",
    )
    parser.add_argument(
        "--no-check",
        action="store_true",
        help="do not compare the result with the source",
    )
    parser.add_argument("--tolerance", type=float, help="the largest difference")
    parser.add_argument(
        "--overwrite", action="store_true", help="replace an existing target"
    )


def _add_tflite(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch", type=int, help="fix the first dimension of inputs")
    parser.add_argument(
        "--fused",
        choices=["auto", "yes", "no"],
        default="auto",
        help="whether LSTM layers become fused operators (default: where they can)",
    )
    parser.add_argument(
        "--quantize",
        choices=["dynamic", "float16", "int8"],
        help="how to store weights; int8 is refused",
    )


def _shape(text: str) -> tuple[str, tuple[int | None, ...]]:
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=DIMS, as x=1,none,8")
    dims = match["dims"].split(",")
    return match["name"], tuple(None if one == "none" else int(one) for one in dims)


def _run(options: argparse.Namespace, notify: Any) -> Any:
    with hidden_log():
        # It loads the native kernels.
        importlib.import_module("opwright")
        convert: Any = importlib.import_module("opwright_runtime.convert")
    shared = {
        "signature": options.signature,
        "inputs": options.input,
        "outputs": options.output,
        "dropout": options.dropout,
        "notify": notify,
    }
    if options.command == "check":
        return convert.check(options.model, **shared)
    shared |= {
        "shapes": dict(options.shape),
        "check": not options.no_check,
        "tolerance": options.tolerance,
        "overwrite": options.overwrite,
    }
    model, target = options.model, options.target
    if options.command == "plain":
        return convert.to_plain(model, target, **shared)
    if options.command == "onnx":
        return convert.to_onnx(model, target, opset=options.opset, **shared)
    fused = {"auto": "auto", "yes": True, "no": False}[options.fused]
    return convert.to_tflite(
        model,
        target,
        fused=fused,
        batch=options.batch,
        quantize=options.quantize,
        **shared,
    )


def _print(outcome: Any, *, as_json: bool) -> int:
    if as_json:
        print(json.dumps(outcome.as_dict(), indent=2))
    else:
        print(outcome)
    return 0 if getattr(outcome, "works", True) else 1


def with_flags_alone(text: str) -> str:
    """An error's text without arguments of functions where it also names the flags."""
    return _ARGUMENTS.sub(r"\g<flags>", text)


def _say(message: str) -> None:
    print(f"opwright-convert: {message}", file=sys.stderr)
