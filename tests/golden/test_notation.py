"""Every shape of every opdef, as C++ and Python evaluate it for the same facts.

C++ may leave open what Python knows to be wrong. It may not state anything else.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from opwright_codegen import cxx_shapes, load, shapes
from opwright_codegen.model import Op
from opwright_codegen.skeleton import TEMPLATES
from opwright_notation.evaluation import Evaluation, Facts
from opwright_notation.functions import Kind
from opwright_notation.sizes import MisfitError, Row
from opwright_notation.syntax import is_call, names_in, parsed
from support.notation import fits
from support.opdefs import every_op
from support.processes import run_code

pytestmark = pytest.mark.rotating(part=8)  # Compiles.

DRAWS = 24
#: What `shapes.h` has for an unknown size.
UNKNOWN = -(2**63)
NATIVE = Path(__file__).parent / "native"
#: Constructs that no opdef has, or has with a value that is never out of range.
ODD = """\
op: Odd
group: audio
inputs:
  - {name: x, type: float, shape: '*x'}
  - {name: n, type: float, shape: n m}
  - {name: a, type: float, shape: '*x[2:] n if flip else n%m n//m'}
outputs:
  - {name: b, type: float, shape: 'k x[1] x[-2]'}
  - {name: c, type: float, shape: '*x[:2] ceildiv(n,m) -n+k'}
  - {name: d, type: float, shape: 'broadcast(x, sized, x) max(n,k) min(m,2)'}
options:
  - {name: k, type: int, default: 2}
  - {name: flip, type: bool, default: false}
  - {name: sized, type: shape, default: []}
"""
#: Reads facts, as integers in the order of a case, and evaluates a shape for them.
HEAD = """\
#include "shapes.h"
static std::string found;
using Strings = std::vector<const char*>;
static const int64_t* next;
static std::vector<int64_t> ReadRow() {
  const int64_t rank = *next++;
  next += rank;
  return std::vector<int64_t>(next - rank, next);
}
static tensorflow::PartialTensorShape ReadShape() {
  std::vector<int64_t> sizes = ReadRow();
  for (int64_t& size : sizes) size = size == opdef::kUnknown ? -1 : size;
  return tensorflow::PartialTensorShape(sizes);
}
static void Bind(opdef::Sizes& names, const char* name, bool is_row) {
  opdef::Row row = opdef::Row::Scalar();
  row.sizes = is_row ? ReadRow() : std::vector<int64_t>{*next++};
  const opdef::Part part = is_row ? opdef::RowNamed(name) : opdef::Named(name);
  (void)names.Match(name, "", row, {part});
}
static void Say(const opdef::Sizes& names, const opdef::Shape& shape, bool misfit) {
  opdef::Row made;
  const bool is_made = !misfit && names.Make("y", shape, &made).ok();
  found += (is_made ? made.Text() : "refused") + "\\n";
}
"""
RUN = """\
import ctypes, json, sys
import tensorflow
library = ctypes.CDLL(sys.argv[1])
library.Results.restype = ctypes.c_char_p
facts = json.load(open(sys.argv[2]))
print(library.Results((ctypes.c_int64 * len(facts))(*facts)).decode(), end="")
"""


@dataclass(frozen=True)
class Case:
    """A shape, and names that it depends on."""

    expression: str
    cxx: cxx_shapes.Shape
    attrs: tuple[tuple[str, str, tuple[str, ...]], ...]
    symbols: tuple[tuple[str, Kind], ...]


def cases() -> list[Case]:
    """The different shapes of all opdefs that have a form in C++."""
    odd, _ = load.load_text(ODD.encode(), Path("audio/Odd.yaml"))
    assert odd is not None
    native, problems = load.load_all(NATIVE)
    assert not problems
    ops = (odd, *every_op().values(), *native)
    found = (case for op in ops for case in cases_of(op))
    return list(dict.fromkeys(found))


def cases_of(op: Op) -> Iterator[Case]:
    read, _ = shapes.read(op)
    for name, shape in cxx_shapes.translated(op)[0].items():
        expression = {**read.inputs, **read.outputs}[name]
        names = names_in(parsed(expression))
        attrs = [op.attr(name) for name in names if name in read.attrs]
        symbols = [read.symbols[name] for name in names if name in read.symbols]
        yield Case(
            expression,
            shape,
            tuple((a.name, str(a.kind), tuple(a.allowed or ("a",))) for a in attrs),
            tuple((s.name, s.kind) for s in symbols if not s.name.startswith("_")),
        )


def drawn(case: Case, complete: bool, chance: random.Random) -> Facts:
    def size() -> int | None:
        return None if not complete and chance.random() < 0.3 else chance.randint(0, 4)

    def row() -> tuple[int | None, ...]:
        return tuple(size() for _ in range(chance.randint(0, 4)))

    values: Mapping[str, Callable[[tuple[str, ...]], Any]] = {
        "bool": lambda _: chance.random() < 0.5,
        "int": lambda _: chance.randint(-1, 3),
        "shape": lambda _: row(),
        "string": chance.choice,
    }
    attrs = {name: values[kind](allowed) for name, kind, allowed in case.attrs}
    sizes: dict[str, object] = {
        name: size() if kind is Kind.SIZE else row() for name, kind in case.symbols
    }
    return Facts(attrs, sizes=sizes)


def source(cases: list[Case]) -> str:
    """A program that evaluates every shape, for several facts each."""
    parts = [HEAD]
    for number, case in enumerate(cases):
        members = "".join(f"    {_member(*attr)};\n" for attr in case.attrs)
        bound = "".join(
            f'  Bind(names, "{name}", {str(kind is Kind.ROW).lower()});\n'
            for name, kind in case.symbols
        )
        parts.append(
            f"static void Shape{number}() {{\n  [[maybe_unused]] struct {{\n{members}"
            f'  }} attrs;\n  opdef::Sizes names("Odd");\n{bound}'
            f"  Say(names, {case.cxx.parts}, {case.cxx.where or 'false'});\n}}\n"
        )
    calls = "".join(f"    Shape{number}();\n" for number in range(len(cases)))
    parts.append(
        'extern "C" const char* Results(const int64_t* facts) {\n  next = facts;\n'
        f"  for (int draw = 0; draw < {DRAWS}; ++draw) {{\n{calls}  }}\n"
        "  return found.c_str();\n}\n"
    )
    return "".join(parts)


def _member(name: str, kind: str, allowed: tuple[str, ...]) -> str:
    texts = ", ".join(map(cxx_shapes.text, allowed))
    member = cxx_shapes.member(name)
    return {
        "bool": f"bool {member} = *next++ != 0",
        "int": f"int64_t {member} = *next++",
        "shape": f"tensorflow::PartialTensorShape {member} = ReadShape()",
        "string": f"std::string {member} = Strings{{{texts}}}[*next++]",
    }[kind]


def integers(case: Case, facts: Facts) -> Iterator[int]:
    """Facts, as the program reads them."""
    allowed = {name: texts for name, _, texts in case.attrs}
    for name, value in (*facts.attrs.items(), *facts.sizes.items()):
        if isinstance(value, tuple):
            yield len(value)
        for one in value if isinstance(value, tuple) else (value,):
            known = allowed[name].index(one) if isinstance(one, str) else one
            yield UNKNOWN if known is None else int(known)


def evaluated(expression: str, facts: Facts) -> Row | None:
    """The shape in Python; None if it is refused."""
    evaluation = Evaluation(facts, None)
    node = parsed(expression)
    try:
        (option,) = evaluation.options(node)
        evaluation.hold(node)
        return evaluation.tuple_row(option)
    except MisfitError:
        return None


def as_row(text: str) -> Row:
    if text == "<unknown>":
        return (...,)
    sizes = text.strip("[]").split(",") if text != "[]" else []
    return tuple(None if size == "?" else int(size) for size in sizes)


def is_open(expression: str, facts: Facts, complete: bool) -> bool:
    """Whether C++ may leave the condition of a shape open."""
    node = parsed(expression)
    if not is_call(node, "where") or not complete:
        return is_call(node, "where")
    try:
        Evaluation(facts, None).value(node.args[1])
    except MisfitError:
        return True
    return False


def disagreement(case: Case, facts: Facts, complete: bool, text: str) -> str | None:
    """How C++ and Python disagree."""
    wanted = evaluated(case.expression, facts)
    got = None if text == "refused" else as_row(text)
    if got is None or wanted is None:
        is_left = got is not None and (... in got or None in got)
        agrees = got == wanted or is_left
        agrees |= wanted is None and is_open(case.expression, facts, complete)
    else:
        agrees = got == wanted or (fits(got, wanted) and not complete)
        agrees |= ... in wanted and got == (...,)
    return None if agrees else f"{case.expression} of {facts}: {text}, not {wanted}"


def test_cxx_shapes_of_all_opdefs_agree_with_evaluation(
    build: Callable[..., Path], tmp_path: Path
) -> None:
    chance = random.Random(0)
    found = cases()
    assert len(found) > 300
    draws = [
        (case, drawn(case, bool(draw % 3), chance), bool(draw % 3))
        for draw in range(DRAWS)
        for case in found
    ]
    program, facts = tmp_path / "shapes.cc", tmp_path / "facts.json"
    program.write_text(source(found))
    numbers = [number for case, one, _ in draws for number in integers(case, one)]
    facts.write_text(json.dumps(numbers))
    library = build(program, "notation", f"-I{TEMPLATES / 'native'}")
    done = run_code(RUN, library, facts)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    compared = zip(draws, said, strict=True)
    wrong = [disagreement(*given, text) for given, text in compared]
    assert [each for each in wrong if each] == []
