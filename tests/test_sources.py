"""Sources are small and use the field's words: functions, files and names."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator

import pytest

from support.places import ROOT

MOST_LINES_OF_A_FILE = 700
MOST_LINES_OF_A_FUNCTION = 80
SIZED = ("codegen/", "runtime/", "tests/", "benchmarks/")
PYTHON_SIZED = ("codegen/", "runtime/")
MAY_BE_LONG = {"runtime/opwright_runtime/_binding/diagnosis.py"}
NOT_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'|^[ \t]*#(?:\\\n|[^\n])*",
    re.DOTALL | re.MULTILINE,
)
# The other branch of an #if may begin the same function once more.
OTHER_BRANCH = re.compile(r"^[ \t]*#el.*?^[ \t]*#endif", re.DOTALL | re.MULTILINE)
SCOPE = re.compile(r"\b(namespace|class|struct|enum|union|extern)\b[^()=]*$")


def tracked(*suffixes: str) -> Iterator[tuple[str, str]]:
    """Names and texts of files that git knows, and that exist."""
    done = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
    )
    for name in done.stdout.decode().split("\0"):
        path = ROOT / name
        if name.endswith(suffixes) and path.is_file() and not path.is_symlink():
            yield name, path.read_text("utf-8")


def python_functions(text: str) -> Iterator[tuple[str, int]]:
    """The functions of a module, with their numbers of lines but for docstrings."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            doc = (ast.get_docstring(node, clean=False) or "").count("\n")
            yield node.name, (node.end_lineno or 0) - node.lineno + 1 - doc


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


def cc_functions(text: str) -> Iterator[tuple[str, int]]:
    """The functions of a C++ source, with their numbers of lines.

    A lambda is part of the function around it.
    """
    text = OTHER_BRANCH.sub(_blank, text)
    blank = NOT_CODE.sub(_blank, text)
    scopes, depth, begin, header = 0, 0, 0, 0
    for found in re.finditer(r"[{};]", blank):
        at = found.start()
        if depth:
            depth += {"{": 1, "}": -1}.get(found[0], 0)
            if not depth and begin >= 0:
                name = " ".join(blank[header:begin].split())
                yield name, blank.count("\n", header, at) + 1
            if not depth:
                header = at + 1
            continue
        if found[0] == "{":
            before = blank[header:at]
            if SCOPE.search(before):
                scopes += 1
            else:
                depth = 1
                # What is no function: the values of an array or a struct.
                begin = at if "(" in before and "=" not in before[-3:] else -1
                header += len(before) - len(before.lstrip())
                continue
        elif found[0] == "}":
            scopes -= 1
        header = at + 1


def too_long(
    sources: Iterator[tuple[str, Iterator[tuple[str, int]]]],
) -> list[str]:
    return [
        f"{name}: {function}: {lines}"
        for name, functions in sources
        for function, lines in functions
        if lines > MOST_LINES_OF_A_FUNCTION
    ]


def test_source_files_are_short() -> None:
    long = {
        name: lines
        for name, text in tracked(".py", ".h", ".cc", ".cu")
        if name.startswith(SIZED)
        and (not name.endswith(".py") or name.startswith(PYTHON_SIZED))
        and (lines := text.count("\n")) > MOST_LINES_OF_A_FILE
    }
    assert long.keys() <= MAY_BE_LONG, long


def test_python_functions_are_short() -> None:
    found = too_long(
        (name, python_functions(text))
        for name, text in tracked(".py")
        if name.startswith(PYTHON_SIZED)
    )
    assert found == []


def test_cc_functions_are_short() -> None:
    found = too_long(
        (name, cc_functions(text))
        for name, text in tracked(".h", ".cc", ".cu")
        if name.startswith(SIZED)
    )
    assert found == []


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        ("int f() {\n  return 1;\n}\n", [3]),
        ("namespace n {\nvoid f() {\n}\nclass C {\n  C() : a_(1) {}\n};\n}\n", [2, 1]),
        ("constexpr int kAll[] = {\n1,\n2};\nvoid f() {}\n", [1]),
        ('void f() {\n  g("}");  // }\n  [] {\n  }();\n}\n', [5]),
        ("TEST(Suite, Name) {\n#define X }\n}\n", [3]),
        ("#if X\nint f() {\n#else\nint g() {\n#endif\n}\nint h() {}\n", [5, 1]),
        ("template <class T>\nvoid f(T t) {\n}\n", [3]),
    ],
)
def test_cc_functions_finds_each_function(text: str, lengths: list[int]) -> None:
    assert [lines for _, lines in cc_functions(text)] == lengths
