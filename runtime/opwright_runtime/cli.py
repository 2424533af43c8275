"""The command line: `python -m opwright`, or `opwright`.

A command imports TensorFlow only when it runs, so help and usage errors come at once.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence

from opwright_notation.tensorflow_log import hidden_log

__all__ = ["main"]

_EPILOG = """\
typical runs:
  opwright search running total
  opwright search --limit 3 "2d convolution"
  opwright for-tf tf.nn.softmax

exit status: 0 found, 1 nothing found, 2 a wrong call
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the ops that match; returns 0, or 1 if there are none."""
    options = _parser().parse_args(arguments)
    with hidden_log():
        if options.command == "for-tf":
            return _for_tf(options.name)
        return _search(" ".join(options.words), options.limit)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "opwright",
        description="Finds TensorFlow ops.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    by_words = commands.add_parser("search", help="by what they do, or by name")
    by_words.add_argument("words", nargs="+", help="running total, MatMul, tf.cumsum")
    by_words.add_argument("--limit", type=_count, default=10, help="how many; 10")
    by_name = commands.add_parser("for-tf", help="those behind a TensorFlow function")
    by_name.add_argument("name", help="tf.nn.softmax")
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
    from opwright_runtime.errors import OpUnknownError
    from opwright_runtime.search import Results, described, for_tf

    try:
        behind = for_tf(name)
    except OpUnknownError as unknown:
        print(f"opwright: {unknown}", file=sys.stderr)
        return 1
    print(behind)
    _print(repr(Results(described(cls.OP_NAME) for cls in behind)))
    return 0


def _print(table: str) -> None:
    """Prints rows, cut to the width of the terminal. A pipe gets complete rows."""
    width = shutil.get_terminal_size((100, 24)).columns
    is_cut = sys.stdout.isatty()
    for row in table.split("\n"):
        print(f"{row[: width - 3]}..." if is_cut and len(row) > width else row)
