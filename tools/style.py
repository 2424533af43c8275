"""Checks the style that ruff and black leave open; `make lint` runs it.

- The name of a test is `test_<unit>_<condition>_<result>`: it begins with a unit.
- Values are written out: no `*(a, b)`, which keeps them on a line against black.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("benchmarks", "examples", "tests", "tools")
GENERATED = ROOT / "tests" / "golden" / "expected"
NO_UNIT = re.compile(r"test_(a|an|how|it|nobody|nothing|the|what|where|who)_")


def findings(text: str) -> Iterator[tuple[int, str]]:
    """Line and fault of each place in the text of a module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and NO_UNIT.match(node.name):
            yield node.lineno, f"{node.name} does not begin with the unit that it tests"
        elif isinstance(node, ast.Starred) and isinstance(
            node.value, (ast.List, ast.Set, ast.Tuple)
        ):
            yield node.lineno, "write the values out, without * and brackets"


def main() -> int:
    """Prints each finding; 1 if there is one."""
    count = 0
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.is_relative_to(GENERATED):
                continue
            for line, fault in findings(path.read_text("utf-8")):
                print(f"{path.relative_to(ROOT)}:{line}: {fault}")
                count += 1
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
