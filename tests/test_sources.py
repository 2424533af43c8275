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
# Words that stood for something that the field has a name for, and that name.
HOME_MADE = {
    r"AskForPages|StrideOfNear": "prefetch; cache-resident layout",
    r"AskInVain|NobodysKey": "probe key, polling",
    r"HostWatch|host_watch": "heartbeat",
    r"ItemOf": "At",
    r"MADE_FOR": "SCHEMA",
    r"\w*[kK]ept_?[wW]eights|\w*KEPT_WEIGHTS": "weight cache",
    r"\w*Patien(?:t|ce|tly)|\w*(?:PATIENCE|patience)": "timeout",
    r"OnRoom|OnTurn|RoomOf|UpdateRoom": "capacity; waiter, grant; sizes",
    r"OptimizerFacts|kFacts": "optimizer traits",
    r"\w*in_words|not_made_so": "format_allowed; constructor_error",
    r"(?<=@)explained": "describe_missing_args",
    r"kWeightedSums": "partial pooling",
    r"legacy form": "num_features configuration",
    r"rooms|test_rooms": "layers",
    r"set-ups?": "workload",
    r"\w*[nN]obody\w*|[wW]hoever": "the caller, user or component",
}
# They are data for users, history, or name the words themselves.
WITHOUT_WORDS = (
    "CHANGELOG.md",
    "generated/",
    "opdefs/",
    "tests/golden/expected/",
    "tests/test_shape.py",
    "tests/test_sources.py",
    "tools/style.py",
)
# Its registry is a table of data.
MAY_BE_LONG = {"runtime/native/embedding/optimizers.h"}
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


@pytest.mark.slow
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


def home_made(text: str) -> list[str]:
    """The home-made words in a text, with the field's."""
    return [
        f"line {text.count(chr(10), 0, found.start()) + 1}: {found[0]}: say {instead}"
        for word, instead in HOME_MADE.items()
        for found in re.finditer(rf"\b(?:{word})\b", text)
    ]


@pytest.mark.slow
def test_sources_use_the_words_of_the_field() -> None:
    suffixes = (".py", ".h", ".cc", ".cu", ".md", ".txt", ".yml", ".toml", ".jinja")
    found = [
        f"{name}: {problem}"
        for name, text in tracked(*suffixes, "Makefile", ".cmake")
        if not name.startswith(WITHOUT_WORDS)
        for problem in home_made(name) + home_made(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ItemOf(rows, 3)", ["ItemOf"]),
        (
            "limit_kept_weights(3)\nOPWRIGHT_KEPT_WEIGHTS",
            ["limit_kept_weights", "OPWRIGHT_KEPT_WEIGHTS"],
        ),
        ("a\n_PATIENCE = 4", ["_PATIENCE"]),
        ("tests/native/test_rooms.py", ["test_rooms"]),
        ("@explained\n# It is explained in a headroom.", ["explained"]),
        ("test_words_in_words", ["test_words_in_words"]),
        ("Set-up", []),
    ],
)
def test_home_made_finds_names_and_words(text: str, words: list[str]) -> None:
    assert [line.split(": ")[1] for line in home_made(text)] == words


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
