"""The command line: `python -m opwright`, or `opwright`."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence

_EPILOG = """\
typical runs:
  opwright search running total
  opwright search --limit 3 "2d convolution"
  opwright for-tf tf.nn.softmax

exit status: 0 found, 1 nothing found, 2 a wrong call
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the ops that were found; returns 0, 1 if there are none."""
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
    by_name = commands.add_parser(
        "for-tf", help="those behind a function of TensorFlow"
    )
    by_name.add_argument("name", help="tf.nn.softmax")
    options = parser.parse_args(arguments)

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from opwright_runtime.search import Results, described, search, tf_names

    if options.command == "search":
        found = search(" ".join(options.words), options.limit)
    else:
        names = tf_names.ops_of(options.name)
        if names is None:
            print(f"opwright: {tf_names.unknown(options.name)}", file=sys.stderr)
            return 1
        found = Results(map(described, names))
    width = shutil.get_terminal_size((100, 24)).columns
    for row in repr(found).split("\n"):
        print(row if len(row) <= width else f"{row[: width - 3]}...")
    return 0 if found else 1


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number")
    return int(text)
