"""Starts the command line, or prints which packages are missing for it."""

from __future__ import annotations

import sys


def main() -> int:
    try:
        from opwright_codegen import cli
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("opwright_codegen"):
            raise
        print(
            f"opwright-codegen: needs {error.name}, which is not installed; run"
            " pip install './dist/<wheel>[codegen]' with the wheel from your clone, or"
            " pip install 'opwright[codegen]' once opwright is on PyPI",
            file=sys.stderr,
        )
        return 2
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
