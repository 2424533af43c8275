"""An op's shapes held against TensorFlow's own shape inference.

Random shapes that fit the inputs' notation go through the op's shape function. Its
result must agree with the notation of the outputs. Then one of the shapes is changed
until it does not fit, and TensorFlow has to refuse it.
"""

from __future__ import annotations

import ast
import itertools
import random
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from opwright_codegen import shapes as notation
from opwright_codegen.model import Arg, Attr, Op, ShapeValue
from opwright_codegen.types import DTypeName, dtype_text
from opwright_notation.evaluation import Facts, Tensor
from opwright_notation.functions import Kind
from opwright_notation.sizes import MisfitError, Row
from opwright_runtime._binding.matching import match
from support.equivalence.calls import build
from support.equivalence.hints import HINTS
from support.equivalence.modes import OLD_GRAPH
from support.equivalence.registry import is_removed, op_def
from support.equivalence.synthesis import _value
from support.notation import fits, held, shapes

DRAWS = 10
#: Calls that are changed, and how many that do not fit are tried.
CHANGED = 6
MISFITS = 40
#: Calls with values that the notation does not mention.
PROBES = 4
#: Mistakes that are enough.
FEW = 3
#: How often sizes are drawn before the notation is taken for one that nothing fits.
MOST_DRAWS = 400
SIZES = (1, 2, 3, 4)


@dataclass
class Verdict:
    """What became of the shapes of one op.

    Attributes:
        wrong: where the notation and TensorFlow disagree.
        lax: where the notation could say more, or TensorFlow takes what does not fit.
        determined: whether a rank or size of an output came out as the notation says.
        constrained: whether there are shapes that do not fit.
        refused: how many of those TensorFlow refused, of how many.
    """

    op: str
    wrong: list[str] = field(default_factory=list)
    lax: list[str] = field(default_factory=list)
    determined: bool = False
    constrained: bool = False
    refused: tuple[int, int] = (0, 0)

    @property
    def counts(self) -> bool:
        """Whether the op counts as checked."""
        refuses = self.refused[0] > 0 or not self.constrained
        return self.determined and refuses and not self.wrong

    @property
    def missing(self) -> str | None:
        """Why it does not count."""
        if self.wrong:
            return self.wrong[0]
        if not self.determined:
            return "inference says nothing of an output, or the notation does not"
        if self.constrained and not self.refused[0]:
            return f"none of {self.refused[1]} shapes that do not fit was refused"
        return None


class NothingFitsError(Exception):
    """No sizes were found that fit the inputs' shapes."""


@dataclass
class Draw:
    """Attrs, shapes and values of one call."""

    attrs: dict[str, Any]
    facts: Facts
    #: By input the shapes of its tensors; a single one unless it is a list.
    rows: dict[str, list[tuple[int, ...]]]
    values: Mapping[str, Any]
    held: dict[str, tuple[int, ...] | None]


def check(
    op: Op, *, draws: int = DRAWS, misfits: int = MISFITS, seed: int = 0
) -> Verdict:
    """Holds the notation of `op` against TensorFlow's inference.

    Args:
        draws: calls that fit.
        misfits: calls that do not, at most; 0 stops where the first is refused.
    """
    drawing = random.Random(zlib.crc32(op.name.encode()) + seed)
    return Checker(op, drawing).check(draws, misfits)


@dataclass
class Checker:
    op: Op
    random: random.Random

    @cached_property
    def shapes(self) -> notation.Shapes:
        found, problems = notation.read(self.op)
        assert not problems, problems
        return found

    def check(self, draws: int, misfits: int) -> Verdict:
        verdict = Verdict(self.op.name)
        said: list[dict[tuple[str, int | None], tuple[Row, list[Row]]]] = []
        last: Draw | None = None
        for _ in range(draws):
            if len(verdict.wrong) >= FEW:
                break
            try:
                draw = self.draw()
            except NothingFitsError as error:
                verdict.wrong.append(str(error))
                break
            try:
                outputs = self.inferred(draw)
            except Exception as error:
                words = " ".join(str(error).split())[:300]
                verdict.wrong.append(
                    f"fits, but is refused: {self.shown(draw)}: {words}"
                )
                continue
            last = last or draw
            said.append(self.compare(draw, outputs, verdict))
        for _ in range(PROBES if last is not None else 0):
            self.probe(verdict)
        self.note(said, verdict)
        if last is not None and not verdict.wrong:
            self.misfits(verdict, misfits)
        return verdict

    # Drawing.

    def draw(self) -> Draw:
        """A call whose shapes fit.

        Raises:
            NothingFitsError: none was found.
        """
        reason = ""
        for _ in range(MOST_DRAWS):
            try:
                return self.drawn()
            except MisfitError as error:
                reason = str(error)
        raise NothingFitsError(f"no shapes that fit were found; the last: {reason}")

    def drawn(self) -> Draw:
        count = self.random.choice((1, 2, 2, 3))
        facts = Facts()
        axes: list[Attr] = []
        attrs: dict[str, Any] = {}
        for attr in self.op.attrs:
            if attr.name in self.roles and attr.name not in self.given:
                axes.append(attr)
                continue
            attrs[attr.name] = self.attr(attr, count)
        dtypes_and_counts(self.op, attrs, count)
        facts.attrs = {name: plain(value) for name, value in attrs.items()}
        facts.values = dict.fromkeys(self.shapes.values)
        for symbol in self.shapes.symbols.values():
            if symbol.name.startswith("_"):
                continue
            several = self.lengths(attrs).get(symbol.name, count)
            facts.sizes[symbol.name] = (
                {index: self.one(symbol.kind) for index in range(several)}
                if symbol.indexed
                else self.one(symbol.kind)
            )
        for attr in axes:
            attrs[attr.name] = self.axis(attr.name, facts, None, attr.kind.is_list)
            facts.attrs = {**facts.attrs, attr.name: plain(attrs[attr.name])}
        rows: dict[str, list[tuple[int, ...]]] = {}
        leads: dict[str, tuple[int, ...] | None] = {}
        # Values first: other shapes depend on them.
        for arg in sorted(
            self.op.inputs, key=lambda a: a.name not in self.shapes.values
        ):
            rows[arg.name] = self.rows(arg, attrs, facts)
            leads[arg.name] = self.lead(arg, facts)
            if arg.name in self.shapes.values or arg.name in self.given:
                value = self.value(arg, rows[arg.name][0], facts)
                facts.values = {**facts.values, arg.name: plain(value)}
        for text in self.shapes.inputs.values():
            shapes(text, facts, 0)
        for arg in self.op.outputs:
            if arg.name in self.shapes.outputs:
                shapes(self.shapes.outputs[arg.name], facts, 0)
        return Draw(attrs, facts, rows, facts.values, leads)

    def one(self, kind: Kind) -> Any:
        if kind is Kind.ROW:
            rank = self.random.choice((0, 1, 1, 2, 2, 3))
            return tuple(self.random.choice(SIZES) for _ in range(rank))
        return self.random.choice(SIZES)

    @cached_property
    def given(self) -> Mapping[str, Sequence[Any]]:
        return dict(self.op.check_with)

    def attr(self, attr: Attr, count: int) -> Any:
        if attr.name in self.given:
            value = self.random.choice(self.given[attr.name])
            return as_attr(value, attr)
        definition = next(a for a in op_def(self.op.name).attr if a.name == attr.name)
        hints = HINTS.get(self.op.name, {})
        kind = str(attr.kind)
        is_used = attr.name in self.shapes.attrs
        default = None if attr.default is None else from_default(attr.default)
        if is_used and kind == "bool":
            return self.random.random() < 0.5
        if is_used and kind == "string" and attr.allowed:
            return self.random.choice(attr.allowed)
        if is_used and kind == "int":
            if default is not None and self.random.random() < 0.25:
                return default
            least = attr.minimum if attr.minimum is not None else 1
            return self.random.randint(max(least, 1), max(least, 1) + 3)
        if is_used and kind == "shape":
            return self.shape()
        if kind == "list(shape)" and attr.default is None:
            return [self.shape() for _ in range(max(count, attr.minimum or 0))]
        if kind == "list(type)":
            return [
                as_dtype(one)
                for one in itertools.islice(
                    itertools.cycle(attr.allowed or ("float", "int32")),
                    max(count, attr.minimum or 0),
                )
            ]
        if default is not None and attr.name not in hints:
            return default
        if attr.name in hints:
            return hints[attr.name]
        if kind == "type":
            allowed = attr.allowed or ("float",)
            plain_ones = [one for one in ("float", "int32", "int64") if one in allowed]
            return as_dtype((plain_ones or list(allowed))[0])
        if kind == "list(int)":
            return [1] * max(count, attr.minimum or 0)
        return _value(definition, False)

    def shape(self) -> tf.TensorShape:
        if self.random.random() < 0.1:
            return tf.TensorShape(None)
        row = self.one(Kind.ROW)
        return tf.TensorShape([None if self.random.random() < 0.2 else s for s in row])

    def lengths(self, attrs: Mapping[str, Any]) -> dict[str, int]:
        """By symbol the length of the list that has one of it a tensor."""
        found = {}
        for arg in self.op.inputs:
            if arg.is_list:
                text = arg.shape or ""
                for name in self.shapes.symbols:
                    if f"{name}[i]" in text:
                        found[name] = length_of(arg, attrs)
        return found

    @cached_property
    def roles(self) -> dict[str, list[tuple[str, ast.expr]]]:
        """By name, which places it has: an axis of a row, an order, paddings."""
        found: dict[str, list[tuple[str, ast.expr]]] = {}
        texts = (*self.shapes.inputs.values(), *self.shapes.outputs.values())
        for text in texts:
            for node in ast.walk(ast.parse(text, mode="eval")):
                for name, role, row in places(node):
                    if name in self.shapes.attrs or name in self.shapes.values:
                        found.setdefault(name, []).append((role, row))
        return found

    def axis(
        self, name: str, facts: Facts, wanted: tuple[int, ...] | None, is_list: bool
    ) -> Any:
        """A value that suits the place of `name`, of shape `wanted`."""
        role, node = self.roles[name][0]
        row = shapes(f"(*{ast.unparse(node)},)", facts)[0]
        rank = len(row)
        if ... in row:
            rank = 1
        size = None
        if wanted is not None and len(wanted):
            size = wanted[0]
        elif is_list:
            size = self.random.randint(0, rank)
        if role == "order":
            size = rank if size is None else size
            if size != rank:
                raise MisfitError(f"{name} has {size} of {rank} axes")
            return self.random.sample(range(rank), rank)
        if role == "paddings":
            if wanted is not None and wanted[:1] != (rank,):
                raise MisfitError(f"{name} has {wanted} of {rank} axes")
            return [[self.random.randint(0, 2) for _ in range(2)] for _ in range(rank)]
        if role == "times":
            if size != rank:
                raise MisfitError(f"{name} has {size} of {rank} axes")
            return [self.random.randint(0, 2) for _ in range(rank)]
        if role == "target":
            if size is None:
                raise MisfitError(f"{name} is no row")
            if size == rank and self.random.random() < 0.5:
                return self.random.sample(list(row), rank)
            if size == 0:
                raise MisfitError("a scalar is no target for all")
            return [-1] + [1] * (size - 1)
        if role == "ones":
            ones = [at for at, one in enumerate(row) if one == 1]
            return self.random.sample(ones, self.random.randint(0, len(ones)))
        span = rank + (role == "new axis")
        low = -span if self.random.random() < 0.3 else 0
        if size is None:
            if not span:
                raise MisfitError(f"{name} has no axis to be")
            return self.random.randint(low, span - 1)
        if size > span:
            raise MisfitError(f"{name} has {size} of {span} axes")
        return self.random.sample(range(span), size)

    def rows(
        self, arg: Arg, attrs: Mapping[str, Any], facts: Facts
    ) -> list[tuple[int, ...]]:
        several = length_of(arg, attrs) if arg.is_list else 1
        text = self.shapes.inputs.get(arg.name, "(...,)")
        found = []
        for index in range(several):
            options = shapes(text, facts, index if arg.is_list else None)
            found.append(self.filled(self.random.choice(options)))
        return found

    def filled(self, row: Row) -> tuple[int, ...]:
        sizes: list[int] = []
        for size in row:
            if size is ...:
                rank = self.random.choice((0, 1, 2))
                sizes += [self.random.choice(SIZES) for _ in range(rank)]
            else:
                sizes.append(
                    self.random.choice(SIZES) if size is None else size  # type: ignore[arg-type]
                )
        return tuple(sizes)

    def lead(self, arg: Arg, facts: Facts) -> tuple[int, ...] | None:
        text = self.shapes.inputs.get(arg.name)
        rows = None if text is None else held(text, facts)
        return None if rows is None else self.filled(self.random.choice(rows))

    def value(self, arg: Arg, row: tuple[int, ...], facts: Facts) -> Any:
        if arg.name in self.given:
            given = self.random.choice(self.given[arg.name])
            if np.shape(given) != row:
                raise MisfitError(f"{arg.name} has {row}, not {given}")
            return given
        if arg.name in self.roles:
            return self.axis(arg.name, facts, row, False)
        count = int(np.prod(row))
        values = [self.random.choice(SIZES) for _ in range(count)]
        return np.array(values, np.int64).reshape(row).tolist()

    # Asking TensorFlow.

    def inferred(self, draw: Draw) -> list[list[tf.TensorShape]]:
        """The shapes that TensorFlow infers, by output."""
        with tf.Graph().as_default():
            if is_removed(op_def(self.op.name)):
                tf.import_graph_def(OLD_GRAPH, name="")
            inputs = {
                arg.name: self.tensors(arg, draw, draw.rows[arg.name])
                for arg in self.op.inputs
            }
            names = {a.name for a in self.op.given}
            attrs = {name: value for name, value in draw.attrs.items() if name in names}
            called = build(self.op.name, {**inputs, **attrs})
            return [
                [t.shape for t in (value if isinstance(value, list) else [value])]
                for value in called.outputs
            ]

    def tensors(self, arg: Arg, draw: Draw, rows: list[tuple[int, ...]]) -> Any:
        dtypes = dtypes_of(arg, draw.attrs, len(rows))
        made = [
            self.tensor(arg, dtype, row, draw)
            for dtype, row in zip(dtypes, rows, strict=True)
        ]
        return made if arg.is_list else made[0]

    def tensor(
        self, arg: Arg, dtype: tf.DType, row: tuple[int, ...], draw: Draw
    ) -> tf.Tensor:
        leads = draw.held.get(arg.name)
        if arg.is_ref:
            return tf.raw_ops.VariableV2(shape=leads or row, dtype=dtype.base_dtype)
        if leads is not None and dtype == tf.resource:
            held_dtype = dtype_held(self.op, draw.attrs)
            return tf.raw_ops.VarHandleOp(dtype=held_dtype, shape=leads)
        if leads is not None and dtype == tf.variant:
            return tf.raw_ops.EmptyTensorList(
                element_shape=tf.constant(leads, tf.int32),
                max_num_elements=-1,
                element_dtype=dtype_held(self.op, draw.attrs),
            )
        value = draw.values.get(arg.name)
        # Shape functions of TensorFlow abort where values have another rank.
        if value is not None and np.shape(value) == row:
            return tf.constant(value, dtype)
        return tf.compat.v1.placeholder(dtype, row)

    def probe(self, verdict: Verdict) -> None:
        """Outputs where TensorFlow knows values that the notation does not mention.

        They may be such as it refuses; then there is nothing to compare.
        """
        draw = self.draw()
        values = dict(draw.values)
        for arg in self.op.inputs:
            unknown = values.get(arg.name) is None and not arg.is_list
            if unknown and is_integer(self.op, arg, draw.attrs):
                row = draw.rows[arg.name][0]
                count = int(np.prod(row))
                order = self.random.sample(range(count), count) if row else [1]
                values[arg.name] = np.reshape(order, row).tolist()
        if values == dict(draw.values):
            return
        known = Draw(draw.attrs, draw.facts, draw.rows, values, draw.held)
        try:
            outputs = self.inferred(known)
        except Exception:
            return
        self.compare(known, outputs, verdict)

    # Comparing.

    def compare(
        self, draw: Draw, outputs: list[list[tf.TensorShape]], verdict: Verdict
    ) -> dict[tuple[str, int | None], tuple[Row, list[Row]]]:
        found: dict[tuple[str, int | None], tuple[Row, list[Row]]] = {}
        facts = Facts(draw.facts.attrs, draw.facts.values)
        try:
            match(self.shapes.inputs, self.given_tensors(draw), facts)
        except MisfitError as error:
            verdict.wrong.append(f"{self.shown(draw)} fits but is refused: {error}")
        for arg, given in zip(self.op.outputs, outputs, strict=True):
            text = self.shapes.outputs.get(arg.name)
            for index, shape in enumerate(given):
                at = index if arg.is_list else None
                actual = as_row(shape)
                expected: list[Row] = (
                    [(...,)] if text is None else shapes(text, draw.facts, at)
                )
                found[arg.name, None if at is None else 0] = actual, expected
                if not any(fits(actual, row) for row in expected):
                    said = " or ".join(map(shown_row, expected))
                    verdict.wrong.append(
                        f"{arg.name} is {shown_row(actual)}, not {said}, for"
                        f" {self.shown(draw)}"
                    )
                elif text is not None and all(agrees(actual, r) for r in expected):
                    verdict.determined = True
        return found

    def note(
        self,
        said: list[dict[tuple[str, int | None], tuple[Row, list[Row]]]],
        verdict: Verdict,
    ) -> None:
        """Where TensorFlow always knows what the notation leaves open."""
        for key in said[0] if said else ():
            pairs = [each[key] for each in said if key in each]
            ranks = {... in actual for actual, _ in pairs}
            if ranks == {False} and all(
                any(... in row for row in rows) for _, rows in pairs
            ):
                lengths = sorted({len(actual) for actual, _ in pairs})
                verdict.lax.append(f"{key[0]}: TensorFlow knows the rank: {lengths}")
            elif all(len(rows) == 1 for _, rows in pairs) and any(
                not any(
                    actual[at] is not None and rows[0][at] is not None
                    for actual, rows in pairs
                    if len(actual) == len(rows[0])
                )
                and all(len(a) > at and a[at] is not None for a, _ in pairs)
                for at in range(min(len(a) for a, _ in pairs))
                if ... not in pairs[0][0] and all(... not in r[0] for _, r in pairs)
            ):
                rows = ", ".join(shown_row(actual) for actual, _ in pairs[:3])
                verdict.lax.append(f"{key[0]}: TensorFlow knows more: {rows}")

    def misfits(self, verdict: Verdict, most: int) -> None:
        """Whether TensorFlow refuses what does not fit."""
        calls = [
            (name, Draw(draw.attrs, draw.facts, rows, draw.values, draw.held))
            for draw in (self.draw() for _ in range(CHANGED))
            for name, rows in self.changed(draw)
        ]
        self.random.shuffle(calls)
        taken: dict[str, str] = {}
        tried = refused = 0
        for name, call in calls:
            if tried >= (most or MISFITS) or (refused and not most):
                break
            if self.fits(call) or _fatal(self.op, call):
                continue
            verdict.constrained = True
            tried += 1
            try:
                self.inferred(call)
            except Exception:
                refused += 1
            else:
                taken.setdefault(name, self.shown(call))
        verdict.refused = refused, tried
        for name, text in taken.items():
            verdict.lax.append(f"{name}: inference takes {text}")

    def fits(self, draw: Draw) -> bool:
        """Whether the notation takes a call."""
        facts = Facts(draw.facts.attrs, draw.facts.values)
        try:
            match(self.shapes.inputs, self.given_tensors(draw), facts)
            for arg in self.op.outputs:
                if arg.name in self.shapes.outputs:
                    shapes(self.shapes.outputs[arg.name], facts, 0)
        except MisfitError:
            return False
        return True

    def given_tensors(self, draw: Draw) -> list[Tensor]:
        return [
            Tensor(arg.name, arg.name, row, index if arg.is_list else None)
            for arg in self.op.inputs
            for index, row in enumerate(draw.rows[arg.name])
        ]

    def changed(
        self, draw: Draw
    ) -> Iterator[tuple[str, dict[str, list[tuple[int, ...]]]]]:
        """The same call with one shape changed."""
        for arg in self.op.inputs:
            for index, row in enumerate(draw.rows[arg.name][:1]):
                others = [(*row, 2), row[1:], row[:-1], (), (2,)]
                others += [
                    (*row[:at], size + 1, *row[at + 1 :]) for at, size in enumerate(row)
                ]
                for other in dict.fromkeys(others):
                    if other == row:
                        continue
                    rows = dict(draw.rows)
                    rows[arg.name] = list(rows[arg.name])
                    rows[arg.name][index] = other
                    yield arg.name, rows

    def shown(self, draw: Draw) -> str:
        parts = []
        for arg in self.op.inputs:
            rows = ", ".join(map(shown_row, draw.rows[arg.name]))
            parts.append(
                f"{arg.name}: [{rows}]" if arg.is_list else f"{arg.name}: {rows}"
            )
            if draw.values.get(arg.name) is not None:
                parts[-1] += f" = {draw.values[arg.name]}"
        for name in sorted(self.shapes.attrs):
            if name in draw.attrs:
                parts.append(f"{name}={draw.attrs[name]!r}")
        return "; ".join(parts) or "no inputs"


def places(node: ast.AST) -> Iterator[tuple[str, str, ast.expr]]:
    """Names in places that need special values: name, role, the row it is about."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        role = {
            "insert": "new axis",
            "replace": "axis",
            "remove": "axis",
            "reduce": "axis",
            "squeeze": "ones",
            "permute": "order",
            "pad": "paddings",
            "tile": "times",
            "reshape": "target",
        }.get(node.func.id)
        if role is not None:
            for name in named(node.args[1]):
                yield name, role, node.args[0]
    elif isinstance(node, ast.Subscript):
        if isinstance(node.slice, ast.Slice):
            parts = [node.slice.lower, node.slice.upper]
        else:
            parts = [node.slice]
        for part in parts:
            for name in named(part) if part is not None else ():
                if name != "i":
                    yield name, "axis", node.value


def named(node: ast.AST) -> list[str]:
    if any(isinstance(each, ast.Call) for each in ast.walk(node)):
        return []
    return [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]


def length_of(arg: Arg, attrs: Mapping[str, Any]) -> int:
    if arg.count is not None:
        return int(attrs[arg.count])
    return len(attrs[arg.type_list_attr or ""])


def dtypes_of(arg: Arg, attrs: Mapping[str, Any], count: int) -> list[tf.DType]:
    if arg.type_list_attr is not None:
        return [tf.as_dtype(one) for one in attrs[arg.type_list_attr]]
    dtype = arg.dtype if arg.dtype is not None else attrs[arg.type_attr or ""]
    return [as_dtype(dtype)] * count


def dtypes_and_counts(op: Op, attrs: dict[str, Any], count: int) -> None:
    """Lengths of lists, where shapes or hints do not say them."""
    given = dict(op.check_with)
    for arg in op.inputs:
        name = arg.count
        if name is None or name in given or name in HINTS.get(op.name, {}):
            continue
        attrs[name] = max(count, op.attr(name).minimum or 0)


def is_integer(op: Op, arg: Arg, attrs: Mapping[str, Any]) -> bool:
    """Whether shapes may depend on what an input holds."""
    dtype = arg.dtype if arg.dtype is not None else attrs.get(arg.type_attr or "")
    return dtype is not None and as_dtype(dtype) in (tf.int32, tf.int64)


def dtype_held(op: Op, attrs: Mapping[str, Any]) -> tf.DType:
    """What a handle's tensors have."""
    for name in ("dtype", "element_dtype", "T", "Tparams", "value_dtype"):
        if name in attrs and isinstance(attrs[name], tf.DType):
            return attrs[name]
    return tf.float32


def as_dtype(name: Any) -> tf.DType:
    return tf.as_dtype(dtype_text(name) if isinstance(name, str) else name)


def as_attr(value: Any, attr: Attr) -> Any:
    """A value of YAML as the attr's kind has it."""
    element = attr.kind.element
    if attr.kind.is_list:
        return [as_element(one, element) for one in value]
    return as_element(value, element)


def as_element(value: Any, kind: str) -> Any:
    if kind == "type":
        return as_dtype(value)
    if kind == "shape":
        if value == "unknown":
            return tf.TensorShape(None)
        return tf.TensorShape([None if size == -1 else size for size in value])
    return value


def from_default(value: Any) -> Any:
    if isinstance(value, tuple):
        return [from_default(one) for one in value]
    if isinstance(value, DTypeName):
        return as_dtype(value)
    if isinstance(value, ShapeValue):
        if value.dims is None:
            return tf.TensorShape(None)
        return tf.TensorShape([None if size == -1 else size for size in value.dims])
    return value if isinstance(value, (int, float, bool, str)) else None


def plain(value: Any) -> Any:
    """A value as shapes know it."""
    if isinstance(value, tf.TensorShape):
        return None if value.rank is None else tuple(value.as_list())
    if isinstance(value, tf.DType):
        return value.name
    if isinstance(value, (list, tuple)):
        return tuple(map(plain, value))
    return value if isinstance(value, (int, float, bool, str)) else None


def as_row(shape: tf.TensorShape) -> Row:
    return (...,) if shape.rank is None else tuple(shape.as_list())


def shown_row(row: Row) -> str:
    words = ["?" if s is None else "..." if s is ... else str(s) for s in row]
    return f"[{' '.join(words)}]"


def agrees(actual: Row, row: Row) -> bool:
    """Whether both know the rank, or a size at the same place."""
    if ... in actual:
        return False
    if ... not in row:
        return True
    return any(
        one is not None and size is not None and size is not ...
        for one, size in zip(actual[::-1], row[::-1], strict=False)
        if size is not ...
    )


#: Inputs of which shape functions read sizes that are not there, which ends the
#: process; by what ops' names begin with and how many sizes are read.
FATAL = {
    ("XlaSparseDenseMatmulCustomCombinerOnTcGrad", 2): (
        "activation_gradients",
        "embedding_table",
        "tables",
    ),
    ("XlaSparseGradientsStack", 2): ("unstacked_gradients",),
    ("BoostedTrees", 1): ("bucketized_features", "node_ids"),
}


def _fatal(op: Op, call: Draw) -> bool:
    """Whether TensorFlow's shape function would end the process: it does up to 2.21."""
    return any(
        op.name.startswith(start) and len(row) < rank
        for (start, rank), names in FATAL.items()
        for name in names
        for row in call.rows.get(name, ())
    )
