"""The command line: `opwright-tpu-check`."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opwright_runtime.tpu_check import (
    CHIPS,
    DEFAULT_CHIPS,
    DEFAULT_TIMEOUT,
    Report,
    TpuCheckError,
    check_tpu,
)

if TYPE_CHECKING:
    from rich.console import Console

_EPILOG = """\
typical runs:
  opwright-tpu-check exported_model
  opwright-tpu-check exported_model --input images=8,224,224,3
  opwright-tpu-check train.py:step --input x=128,784 --input y=128:int64
  opwright-tpu-check exported_model --chip v6e --json

exit status: 0 it compiles for every chip, 1 it does not, 2 a wrong call
"""

_INPUT = re.compile(r"(?P<name>\w[\w./-]*)=(?P<shape>[\d,]*)(:(?P<dtype>\w+))?")


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks one program; returns 0 if it compiles, 1 if not, 2 for a wrong call."""
    options = _parser().parse_args(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        from rich.console import Console
    except ModuleNotFoundError:
        _say("needs rich, which is not installed; run pip install 'opwright[tpu]'")
        return 2
    progress = Console(stderr=True)
    try:
        report = _check(options, progress)
    except TpuCheckError as error:
        _say(str(error))
        return 2
    except KeyboardInterrupt:
        _say("interrupted")
        return 130
    _print(report, as_json=options.json)
    return 0 if report.compiles else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="opwright-tpu-check",
        description=(
            "Compiles a SavedModel or a function for TPUs, on a machine without one,"
            " and prints whether that works, what stops it, memory and FLOPs."
        ),
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "program",
        metavar="PROGRAM",
        help="folder of a SavedModel, or a function as file.py:name or module:name",
    )
    parser.add_argument(
        "--input",
        type=_input,
        action="append",
        default=[],
        metavar="NAME=DIMS[:DTYPE]",
        help=(
            "shape of an input, as x=8,128; dtype as in the signature, for a function"
            " float32; repeatable"
        ),
    )
    parser.add_argument(
        "--signature",
        metavar="NAME",
        help="signature of the SavedModel (default: serving_default, or the only one)",
    )
    parser.add_argument(
        "--chip",
        action="append",
        choices=list(CHIPS),
        help=f"compile for this one; repeatable (default: {', '.join(DEFAULT_CHIPS)})",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=DEFAULT_TIMEOUT,
        metavar="SECONDS",
        help=f"for each chip (default: {DEFAULT_TIMEOUT:g})",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser


def _input(text: str) -> tuple[str, tuple[int, ...], str | None]:
    match = _INPUT.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=DIMS[:DTYPE]")
    shape = tuple(int(size) for size in match["shape"].split(",") if size)
    return match["name"], shape, match["dtype"]


def _check(options: argparse.Namespace, progress: Console) -> Report:
    with progress.status("starting TensorFlow") as status:
        # This import loads the native kernels.
        importlib.import_module("opwright")
        program = _program(options.program)
        return check_tpu(
            program,
            chips=options.chip or DEFAULT_CHIPS,
            signature=options.signature,
            timeout=options.timeout,
            notify=status.update,
            **_inputs(options.input, of_function=callable(program)),
        )


def _program(target: str) -> Path | Callable[..., Any]:
    module_name, colon, attribute = target.rpartition(":")
    if not colon or Path(target).exists():
        return Path(target)
    # Python also puts this folder first, for a script and for -m.
    file = Path(module_name)
    sys.path.insert(0, str(file.parent) if file.suffix == ".py" else os.getcwd())
    try:
        module = importlib.import_module(file.stem if file.suffix else module_name)
    except ModuleNotFoundError as error:
        raise TpuCheckError(f"{target}: {error}") from error
    function: Any = getattr(module, attribute, None)
    if not callable(function):
        raise TpuCheckError(f"{target}: {module_name} has no function {attribute!r}")
    called: Callable[..., Any] = function
    return called


def _inputs(
    given: list[tuple[str, tuple[int, ...], str | None]], *, of_function: bool
) -> dict[str, Any]:
    import tensorflow as tf

    inputs: dict[str, Any] = {}
    for name, shape, dtype in given:
        # A signature has the dtypes of its inputs. A function does not.
        if dtype is None and not of_function:
            inputs[name] = shape
            continue
        try:
            inputs[name] = tf.TensorSpec(shape, dtype or "float32", name)
        except TypeError:
            raise TpuCheckError(f"input {name!r}: no dtype {dtype!r}") from None
    return inputs


def _print(report: Report, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report.as_dict(), indent=2))
        return
    from rich.console import Console

    from opwright_runtime.tpu_check import tables

    console = Console()
    if console.is_terminal:
        console.print(tables.render(report))
    else:
        print(tables.text(report))


def _say(message: str) -> None:
    print(f"opwright-tpu-check: {message}", file=sys.stderr)
