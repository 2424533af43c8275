"""The command line: `opwright-tpu-check`."""

from __future__ import annotations

import argparse
import difflib
import importlib
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opwright_notation.closed_pipe import drop_output
from opwright_notation.tensorflow_log import hidden_log
from opwright_runtime._extras import how_to_install
from opwright_runtime.tpu_check import (
    CHIPS,
    DEFAULT_CHIPS,
    DEFAULT_TIMEOUT,
    OpenShapeError,
    Report,
    TpuCheckError,
    check_tpu,
    compiler,
)
from opwright_runtime.tpu_check.findings import (
    MissingInputError,
    close_chips,
    no_saved_model,
)

if TYPE_CHECKING:
    from rich.console import Console

_EPILOG = """\
typical runs:
  opwright-tpu-check exported_model
  opwright-tpu-check model.keras --input 8,224,224,3
  opwright-tpu-check exported_model --input images=8,224,224,3
  opwright-tpu-check train.py:step --input x=128,784 --input y=128:int64
  opwright-tpu-check exported_model --chip v6e --json

exit status: 0 it compiles for every chip, 1 it does not compile for some chip,
2 a wrong call, 3 not known for some chip, because libtpu timed out
"""

_INPUT = re.compile(r"((?P<name>\w[\w./-]*)=)?(?P<shape>[\d,]*)(:(?P<dtype>\w+))?")

#: The dtypes that the option may name. TensorFlow, which has the list, loads slowly.
DTYPES = (
    "bool",
    "bfloat16",
    "float16",
    "half",
    "float32",
    "float",
    "float64",
    "double",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "int4",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint4",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "complex64",
    "complex128",
    "string",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks one program; returns the exit status.

    0 if it compiles, 1 if not, 2 for a wrong call, 3 if libtpu timed out.
    """
    options = _parser().parse_args(arguments)
    try:
        status = _run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()
        return 1
    finally:
        if options.json and arguments is None:
            # What the program prints when the process ends goes to stderr as well.
            os.dup2(2, 1)
    return status


def _run(options: argparse.Namespace) -> int:
    """Checks the program and prints the report; returns the exit status."""
    try:
        from rich.console import Console
    except ModuleNotFoundError:
        _say(f"needs rich, which is not installed; {how_to_install('tpu')}")
        return 2
    try:
        # A descriptor of its own: hidden_log replaces stderr.
        with (
            os.fdopen(os.dup(2), "w", errors="backslashreplace") as terminal,
            _stdout_on_stderr() if options.json else nullcontext(),
        ):
            report = _check(options, Console(file=terminal))
    except OpenShapeError as error:
        _say(f"{error.reason}: give {_options(error)}")
        return 2
    except MissingInputError as error:
        wanted = " ".join(f"--input {name}=DIMS[:DTYPE]" for name in error.names)
        _say(f"{error}; give {wanted} (DTYPE is float32 by default)")
        return 2
    except TpuCheckError as error:
        _say(str(error))
        return 2
    except KeyboardInterrupt:
        _say("interrupted")
        return 130
    _print(report, as_json=options.json)
    if report.refused:
        return 1
    return 0 if report.compiles else 3


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="opwright-tpu-check",
        description=(
            "Compiles a SavedModel, a .keras file, a Keras model or a function for"
            " TPUs, on a machine without one, and prints whether that works, what stops"
            " it, memory and FLOPs."
        ),
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "program",
        metavar="PROGRAM",
        help=(
            "folder of a SavedModel, a .keras file, or a function or Keras model as"
            " file.py:name or module:name"
        ),
    )
    parser.add_argument(
        "--input",
        type=_input,
        action="append",
        default=[],
        metavar="[NAME=]DIMS[:DTYPE]",
        help=(
            "shape of an input, as x=8,128, or 8,128 of the only one; dtype as in the"
            " model, for a function float32; repeatable"
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
        type=_chip,
        metavar=f"{{{','.join(CHIPS)}}}",
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


def _chip(text: str) -> str:
    if text not in CHIPS:
        raise argparse.ArgumentTypeError(
            f"no chip {text!r}: give one of {', '.join(CHIPS)}, and repeat the option"
            f" for more{close_chips(text)}"
        )
    return text


_Input = tuple[str | None, tuple[int, ...], str | None]


def _input(text: str) -> _Input:
    match = _INPUT.fullmatch(text)
    if match is None or not (match["name"] or match["shape"]):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NAME=DIMS[:DTYPE], such as x=8,128 or x=8:int64"
            f"{_meant(text)}"
        )
    shape = tuple(int(size) for size in match["shape"].split(",") if size)
    dtype = match["dtype"]
    if dtype is not None and dtype not in DTYPES:
        meant = difflib.get_close_matches(dtype, DTYPES, n=1)
        hint = f"did you mean {meant[0]}?" if meant else f"one of {', '.join(DTYPES)}"
        raise argparse.ArgumentTypeError(f"{text!r}: no dtype {dtype!r}; {hint}")
    return match["name"], shape, dtype


def _meant(text: str) -> str:
    """What to write in place of a wrong input; "" if that is not known."""
    commas = re.sub(r"(?<=\d)[x*;](?=\d)|, +", ",", re.sub(r"[\[\]()]", "", text))
    sized = re.sub(r"(?<=[=,])(None|-1|\?)|^(None|-1|\?)(?=,|$)", "8", commas)
    if sized == text or not _INPUT.fullmatch(sized):
        return ""
    if sized != commas:
        return f"; a TPU program takes fixed shapes: give every size, such as {sized}"
    return f"; did you mean {sized}?"


@contextmanager
def _stdout_on_stderr() -> Iterator[None]:
    """Sends to stderr what the program and libraries print to stdout."""
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdout.flush()
        os.dup2(stdout, 1)
        os.close(stdout)


def _options(error: OpenShapeError) -> str:
    """The options that would fix the shapes, with a size for each open dimension."""
    dtypes = {name: f":{dtype}" for name, dtype in error.dtypes.items()}
    return " ".join(
        f"--input {name}={sizes.replace(' ', '') or 'DIMS'}{dtypes.get(name, '')}"
        for name, sizes in error.examples.items()
    )


def _check(options: argparse.Namespace, progress: Console) -> Report:
    compiler.require(options.chip or DEFAULT_CHIPS)
    path = _path(options.program)
    with _steps(progress, "starting TensorFlow") as say:
        with hidden_log():
            # This import loads the native kernels.
            importlib.import_module("opwright")
        program = path or _function(options.program, say)
        args, kwargs = _inputs(options.input, program)
        return check_tpu(
            program,
            *args,
            chips=options.chip or DEFAULT_CHIPS,
            signature=options.signature,
            timeout=options.timeout,
            notify=say,
            **kwargs,
        )


@contextmanager
def _steps(progress: Console, first: str) -> Iterator[Callable[[str], None]]:
    """Shows each step: in one place on a terminal, elsewhere as a line of its own."""
    if progress.is_terminal:
        with progress.status(first) as status:
            yield status.update
        return

    def say(step: str) -> None:
        print(f"opwright-tpu-check: {step}", file=progress.file, flush=True)

    say(first)
    yield say


def _path(target: str) -> Path | None:
    """The path of a model; None if a function is named."""
    path = Path(target)
    if ":" in target and not path.exists():
        file = target.rpartition(":")[0]
        if file.endswith(".py") and not Path(file).exists():
            raise TpuCheckError(f"{file}: no such file")
        return None
    is_keras = path.is_file() and path.suffix == ".keras"
    if not is_keras and not [*path.glob("saved_model.pb*")]:
        raise no_saved_model(path)
    return path


@contextmanager
def _arguments_of(script: str) -> Iterator[None]:
    """A command line of a script without options, which its import may parse."""
    own = sys.argv
    sys.argv = [script]
    try:
        yield
    finally:
        sys.argv = own


def _function(target: str, say: Callable[[str], None]) -> Callable[..., Any]:
    module_name, _, attribute = target.rpartition(":")
    say(f"importing {module_name}")
    # Python also puts this folder first, for a script and for -m.
    file = Path(module_name)
    sys.path.insert(0, str(file.parent) if file.suffix == ".py" else os.getcwd())
    try:
        with _arguments_of(module_name):
            module = importlib.import_module(file.stem if file.suffix else module_name)
    except ModuleNotFoundError as error:
        raise TpuCheckError(f"{target}: {error}") from error
    except Exception as error:
        text = f"{module_name} cannot be imported: {_place(error)}"
        raise TpuCheckError(f"{text}{type(error).__name__}: {error}") from error
    except SystemExit as error:
        # Python has run the module's own command line, which has printed why.
        raise TpuCheckError(
            f"{module_name} ends while it is imported, with status {error.code}; put "
            'what only its command needs under `if __name__ == "__main__":`'
        ) from error
    if not hasattr(module, attribute):
        close = difflib.get_close_matches(attribute, vars(module), n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        text = f"{target}: {module_name} has no function {attribute!r}{hint}"
        raise TpuCheckError(text)
    function: Any = getattr(module, attribute)
    if not callable(function):
        text = f"{attribute!r} of {module_name} is no function but"
        raise TpuCheckError(f"{target}: {text} {type(function).__name__}")
    called: Callable[..., Any] = function
    return called


def _place(error: Exception) -> str:
    """The line of the module, or of what it calls, where an import ended."""
    if isinstance(error, SyntaxError):
        return ""  # Its text has the file and the line.
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.filename}:{last.lineno}: "


def _inputs(
    given: list[_Input], program: Path | Callable[..., Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The inputs without a name, and those with one."""
    import tensorflow as tf

    from opwright_runtime.tpu_check import inputs

    # A model has the dtypes of its inputs. A function does not.
    has_dtypes = isinstance(program, Path) or inputs.of_keras_model(program) is not None
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for name, shape, dtype in given:
        example: Any = shape
        if dtype is not None or not has_dtypes:
            example = tf.TensorSpec(shape, dtype or "float32", name)
        if name is None:
            args.append(example)
        elif name in kwargs:
            raise TpuCheckError(f"input {name!r} is given twice")
        else:
            kwargs[name] = example
    if len(args) > 1 or (args and kwargs):
        raise TpuCheckError("--input needs a name, NAME=DIMS, where there are several")
    return args, kwargs


def _print(report: Report, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report.as_dict(), indent=2))
        return
    from rich.console import Console

    from opwright_runtime.tpu_check import tables

    console = Console()
    if console.is_terminal:
        console.print(tables.render(report, console.width), crop=False)
    else:
        print(tables.text(report))


def _say(message: str) -> None:
    print(f"opwright-tpu-check: {message}", file=sys.stderr)
