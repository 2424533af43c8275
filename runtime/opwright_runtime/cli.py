"""The command line: `python -m opwright`, or `opwright`.

Only `build-native` and errors of `for-tf` import TensorFlow, so all else comes at once.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from opwright_notation.closed_pipe import drop_output
from opwright_notation.tensorflow_log import hidden_log

if TYPE_CHECKING:
    from opwright_runtime._build_native import Progress

__all__ = ["main"]

_EPILOG = """\
typical runs:
  opwright search running total
  opwright search --limit 3 "2d convolution"
  opwright for-tf tf.nn.softmax
  opwright build-native

exit status: 0 found or built, 1 nothing found or not built, 2 a wrong call
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns 0, or 1 if it finds or builds nothing."""
    options = _parser().parse_args(arguments)
    if options.command == "build-native":
        return _build_native(options.jobs, options.force)
    try:
        with hidden_log():
            if options.command == "for-tf":
                status = _for_tf(options.name)
            else:
                status = _search(" ".join(options.words), options.limit)
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()
        return 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "opwright",
        description="Finds TensorFlow ops, and builds opwright's native kernels.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    by_words = commands.add_parser("search", help="by what they do, or by name")
    by_words.add_argument("words", nargs="+", help="running total, MatMul, tf.cumsum")
    by_words.add_argument("--limit", type=_count, default=10, help="how many; 10")
    by_name = commands.add_parser("for-tf", help="those behind a TensorFlow function")
    by_name.add_argument("name", help="tf.nn.softmax")
    build = commands.add_parser(
        "build-native",
        help="build the native kernels for the installed TensorFlow",
        description="Builds the native kernels for the installed TensorFlow, which "
        "takes a C++ compiler and minutes. OPWRIGHT_DATA_DIR names the folder for the "
        "library, CXX the compiler.",
    )
    build.add_argument(
        "--jobs", type=_count, help="compilers at once; as many as there are cores"
    )
    build.add_argument(
        "--force", action="store_true", help="build although there are kernels"
    )
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number")
    return int(text)


def _search(query: str, limit: int) -> int:
    from opwright_runtime.search import search

    found = search(query, limit)
    _print(repr(found))
    return 0 if found else 1


def _for_tf(name: str) -> int:
    from opwright_runtime.search import Results, described, function_of, tf_names

    try:
        function = function_of(name)
    except LookupError as unknown:
        print(f"opwright: {unknown}", file=sys.stderr)
        return 1
    print(tf_names.sentence(function))
    _print(repr(Results(map(described, tf_names.ops_of(function)))))
    return 0


def _print(table: str) -> None:
    """Prints rows, cut to the width of the terminal. A pipe gets complete rows."""
    width = shutil.get_terminal_size((100, 24)).columns
    is_cut = sys.stdout.isatty()
    for row in table.split("\n"):
        print(f"{row[: width - 3]}..." if is_cut and len(row) > width else row)


def _build_native(jobs: int | None, force: bool) -> int:
    # Not during the build, whose progress goes to stderr too.
    with hidden_log():
        from opwright_runtime import native
        from opwright_runtime._build_native import BuildError, build

        if not force:
            try:
                native.load()
            except native.NativeLibraryError:
                pass  # What is there does not help.
            else:
                print(f"there are kernels for this TensorFlow: {native.LIBRARY}")
                return 0
    begin = time.monotonic()
    try:
        with _progress() as progress:
            library = build(progress, jobs)
    except BuildError as error:
        print(f"opwright: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("opwright: interrupted; nothing was built", file=sys.stderr)
        return 130
    print(f"built in {time.monotonic() - begin:.0f} s: {library}")
    if os.environ.get("OPWRIGHT_LIBRARY"):
        print("OPWRIGHT_LIBRARY names another library: unset it to use this one")
    return 0


@contextmanager
def _progress() -> Iterator[Progress]:
    """Shows what is compiled: a bar in a terminal if rich is installed, else lines."""
    if not sys.stderr.isatty() or importlib.util.find_spec("rich") is None:
        yield lambda name, done, total: print(
            f"[{done}/{total}] {name}", file=sys.stderr, flush=True
        )
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("compiling", total=None)

        def show(name: str, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, description=name)

        yield show
