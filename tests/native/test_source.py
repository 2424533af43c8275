"""The native sources have no call that aborts, truncates a number, or may throw."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from support.places import NATIVE

FILES = sorted(
    p
    for p in NATIVE.rglob("*")
    if p.suffix in {".h", ".cc", ".cu"}
    and not re.search(r"/testing/|_test\.cc$|/adapter_", str(p))
)

# By problem: a pattern. A shape of constants is always valid.
CONSTANTS = r"(?:\d+(?:,\s*\d+)*)?\}"
SHORT = r"(?:u?int(?:8|16|32)_t|int|unsigned)"
FORBIDDEN = {
    "aborts on a bad shape; use BuildTensorShape": (
        rf"\bTensorShape(?:\s+\w+)?\s*\(\s*\{{(?!\s*{CONSTANTS})"
        rf"|(?<!\bBuild)\bTensorShape(?:\s+\w+)?\s*\{{(?!\s*{CONSTANTS})"
    ),
    "aborts on a bad dimension; use AddDimWithStatus": (
        r"\b(?:AddDim|set_dim|InsertDim|RemoveDim|AppendShape|RemoveLastDims)\s*\("
    ),
    "aborts on another rank; use flat": (
        r"(?:\.|->)\s*(?:template\s+)?(?:vec|scalar|matrix|tensor|shaped)\s*<"
    ),
    "aborts by design": (
        r"\b(?:TF_)?D?CHECK(?:_[A-Z_]+)?\s*\(|\bLOG\s*\(\s*FATAL|\bassert\s*\("
        r"|\b(?:abort|_?exit|quick_exit|terminate)\s*\(|\bValueOrDie\b"
    ),
    "takes what is no number; use absl::SimpleAtoi": (
        r"\bsto(?:i|l|ll|ul|ull|f|d)\s*\(|\bato(?:i|l|ll|f)\s*\("
    ),
    "cuts a size short; use Narrow": (
        rf"(?:static_cast<{SHORT}>|\b{SHORT})\(\s*[\w.>-]*size\(\)\s*\)"
        rf"|\({SHORT}\)\s*[\w.>-]*size\(\)"
    ),
    "sizes a copy by hand": (
        r"\b(?:alloca|malloc|calloc|realloc|strcpy|strcat|sprintf)\s*\("
    ),
    "allocates by hand": r"\bnew\s+[\w:<>]+\s*\[",
    "is not guarded; use OPWRIGHT_REGISTER_KERNEL": (r"\bREGISTER_KERNEL_BUILDER\s*\("),
}

# Exceptions: by file, a part of the line and the reason.
CONFIGURED = "a configuration's sizes are bounded when it is read"
CHECKED = "core has checked these sizes"
RANK = "its rank is known"
ALLOWED = {
    "base/checked.h": {
        "return std::unique_ptr<T[]>(new T[static_cast<size_t>(count)]);": (
            "the only place; the caller that makes bags catches the exception"
        ),
    },
    "base/tf/device_context.h": {
        "TensorShape({static_cast<int64_t>(block)})": "one is never refused",
    },
    "embedding/tf/setup_kernels.cc": {
        "output->scalar<T>()() = std::move(value);": RANK,
    },
    "embedding/tf/state_kernels.cc": {
        "return TensorShape(": CONFIGURED,
    },
    "embedding/tf/step_kernels.cc": {
        "tagged.push_back(rates[i].scalar<float>()());": RANK,
    },
    "rnn/tf/params_kernels.cc": {
        "sizes[i] = tensor.scalar<int32_t>()();": RANK,
        "output->vec<S>()(0) = static_cast<S>(size);": RANK,
    },
    "rnn/tf/rnn_kernels.cc": {
        "context->input(call_.kLengths).template vec<int32_t>()": RANK,
        "if (!lstm) output_c->template scalar<T>()() = T(0);": RANK,
        "if (!training_) reserve->template scalar<T>()() = T(0);": RANK,
        "if (!lstm) input_c_backprop->template scalar<T>()() = T(0);": RANK,
    },
    "sparsecore/tf/update_kernels.cc": {
        "*value = tensor->scalar<float>()();": RANK,
    },
    "rnn/tf/xla_kernels.cc": {
        "made.vec<int32_t>()(0) = static_cast<int32_t>(size);": RANK,
        "made.vec<int64_t>()(0) = size;": RANK,
    },
}


def code(source: str) -> str:
    """The source without comments and contents of strings, with the same lines."""
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\''

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match.group())

    return re.sub(pattern, blank, source, flags=re.DOTALL)


def findings() -> Iterator[tuple[str, str, str]]:
    """File, line and problem of each match."""
    for path in FILES:
        text = path.read_text()
        lines = text.splitlines()
        stripped = code(text)
        name = path.relative_to(NATIVE).as_posix()
        for problem, pattern in FORBIDDEN.items():
            for match in re.finditer(pattern, stripped):
                line = stripped.count("\n", 0, match.start())
                yield name, lines[line].strip().rstrip("\\").strip(), problem


def test_native_sources_have_no_forbidden_call() -> None:
    found = [
        (name, line, problem)
        for name, line, problem in findings()
        if not any(part in line for part in ALLOWED.get(name, {}))
    ]
    assert not found, "\n".join(f"{f}: {line}: {problem}" for f, line, problem in found)


def test_allowed_lines_are_needed() -> None:
    """An exception that matches no line is removed from the list."""
    found = [(name, line) for name, line, _ in findings()]
    for file, parts in ALLOWED.items():
        for part in parts:
            assert any(file == name and part in line for name, line in found), part


@pytest.mark.parametrize(
    "line",
    [
        "TensorShape({n})",
        "const TensorShape shape({2, rows});",
        "TensorShape({\n  samples})",
        "TensorShape{n}",
        "shape.AddDim(4);",
        "tensor->template scalar<T>()() = 0;",
        "tensor.vec<int>()(0)",
        "CHECK_EQ(a, b);",
        "DCHECK(a)",
        "TF_CHECK_OK(status);",
        "LOG(FATAL) << 1;",
        "std::abort();",
        "exit(1);",
        "std::stoi(text)",
        "static_cast<int>(serialized.size())",
        "static_cast<int32_t>(list->size())",
        "int(bytes.size())",
        "(int)bytes.size()",
        "new float[n]",
        "new std::atomic<int>[n]",
        "REGISTER_KERNEL_BUILDER(Name(NAME), Op);",
    ],
)
def test_forbidden_rules_match_bad_line(line: str) -> None:
    assert any(re.search(pattern, code(line)) for pattern in FORBIDDEN.values())


@pytest.mark.parametrize(
    "line",
    [
        "TensorShape({})",
        "TensorShape({2, 2})",
        "TensorShape::BuildTensorShape({n}, &shape)",
        "shape.AddDimWithStatus(n)",
        "tensor.flat<float>()(0)",
        "OP_REQUIRES_OK(context, CheckShape(a));",
        "Check(stack)",
        "static_assert(sizeof(a) == 1);",
        "static_cast<int64_t>(list.size())",
        "// CHECK(a)",
        'Invalid("abort()")',
        "new Engine(configuration)",
        "#include <new>",
    ],
)
def test_forbidden_rules_ignore_good_line(line: str) -> None:
    assert not any(re.search(pattern, code(line)) for pattern in FORBIDDEN.values())
