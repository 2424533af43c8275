"""`requires` of opdefs: which conditions it takes, and what they are in Python."""

from __future__ import annotations

import dataclasses
import textwrap
from pathlib import Path

import pytest

from opwright_codegen import docs, dump, emit, load, renamed, requirements
from opwright_codegen.model import Op

FACTS = """
inputs:
  - {name: a, type: T}
  - {name: b, type: T}
  - {name: size, type: int32}
  - {name: parts, type: T, count: N}
  - {name: min, type: float}
  - {name: handle, type: resource}
  - {name: other, type: resource}
attrs:
  - {name: T, type: type}
  - {name: N, type: int}
  - {name: block, type: int}
  - {name: out, type: type}
  - {name: steps, type: list(int)}
  - {name: weights, type: list(float)}
  - {name: call, type: func}
options:
  - {name: flip, type: bool, default: false}
  - {name: rate, type: float, default: 1.0}
  - {name: format, type: string, default: NHWC, allowed: [NHWC, NCHW]}
  - {name: strides, type: list(int), default: []}
  - {name: dims, type: shape, default: unknown}
  - {name: shapes, type: list(shape), default: []}
"""


def load_op(*conditions: str) -> Op:
    text = "op: Odd\ngroup: nn\nrequires:\n"
    text += "".join(f"  - '{one}'\n" for one in conditions) + FACTS
    found, problems = load.load_text(text.encode(), Path("opdefs/nn/Odd.yaml"))
    assert found is not None, problems
    return found


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("rank(a) == 4", "rank_of(a) == 4"),
        ("rank(a, b) == 4", "rank_of(a) == 4 and rank_of(b) == 4"),
        ("elements(size) >= 1", "elements_of(size) >= 1"),
        ("shape(a) == shape(b)", "sizes_of(a) == sizes_of(b)"),
        ("shape(a)[-1] == shape(b)[0]", "sizes_of(a)[-1] == sizes_of(b)[0]"),
        ("shape(a)[1:] == shape(b)[1:]", "sizes_of(a)[1:] == sizes_of(b)[1:]"),
        ("block < 2**31", "block < 2147483648"),
        ("most(strides) < 4", "most_of(strides) < 4"),
        ("most(steps) < 4", "most_of(steps) < 4"),
        ("least(size) >= 0", "least_of(size) >= 0"),
        ("finite(rate)", "all_finite(rate)"),
        (
            'format == "NCHW" or len(strides) == 4',
            "(text_of(format) == 'NCHW' or len(strides) == 4)",
        ),
        ("not flip or value(size) > 0", "(not flip or value_of(size) > 0)"),
        ("rank(a) == (4 if flip else 5)", "rank_of(a) == (4 if flip else 5)"),
        (
            "holds(handle, other, T)",
            "are_held(dtype_of(a, b, parts), handle, other)",
        ),
        (
            "table(handle, out, T)",
            "is_table(handle, dtype_name(out), dtype_of(a, b, parts))",
        ),
        ("holds(handle, out)", "are_held(dtype_name(out), handle)"),
        ("N > 1", "len(tensors_of(parts)) > 1"),
        ("len(parts) > 1", "len(tensors_of(parts)) > 1"),
        (
            "rank(parts) == 1",
            "all(rank_of(_parts) == 1 for _parts in tensors_of(parts))",
        ),
        ("elements(min) == 1", "elements_of(min_) == 1"),
        ("prod(dims) < 9", "product_of(dims_of(dims)) < 9"),
        ("len(shapes) == N", "len(shapes) == len(tensors_of(parts))"),
        ("most(ranks(shapes)) < 254", "most_of(ranks_of(shapes_of(shapes))) < 254"),
        (
            "memory(out, contents(size), shape(a)[1:])",
            "has_room(dtype_name(out), contents_of(size), sizes_of(a)[1:])",
        ),
        (
            "memory(T, steps(a, b, size), last(size) + 1)",
            "has_room(some_dtype_of(a, b, parts), steps_of(a, b, size), "
            "last_of(size) + 1)",
        ),
        (
            "memory(out, padded(a, size))",
            "has_room(dtype_name(out), padded_of(a, size))",
        ),
        (
            "memory(T, banded(a, size, size, size))",
            "has_room(some_dtype_of(a, b, parts), banded_of(a, size, size, size))",
        ),
        ("subscripts(format)", "are_subscripts(format)"),
        ("terms(a, b) < 9", "terms_of(a, b) < 9"),
        ("nested(parts)", "are_nested(parts)"),
        ("filled(other, size)", "is_filled(other, size)"),
        ("invertible(a)", "is_invertible(a)"),
        ("matrix(other)[-1] > 0", "matrix_of(other)[-1] > 0"),
        ("drawable(a) and uncut(a)", "are_drawable(a) and are_uncut(a)"),
        ("contracts(a, b, format)", "is_contracted(a, b, format)"),
        ("labels(a, b, format)", "are_labeled(a, b, format)"),
        ("precise(format)", "is_precise(format)"),
        ("block * len(format) < 9", "block * len(text_of(format)) < 9"),
        ("writable(format)", "is_writable(format)"),
        ("writable(format, format)", "is_writable(format, format)"),
        ("len(einsum(parts, format)) < 9", "len(einsum_of(parts, format)) < 9"),
        (
            "batches(parts, format) == 1 or memory(T, reduced(parts, format))",
            "(batches_of(parts, format) == 1 or has_room(some_dtype_of(a, b, parts), "
            "reduced_of(parts, format)))",
        ),
        (
            "convolves(a, b, size, size, format)",
            "is_convolved(a, b, size, size, format)",
        ),
        ("batched(size, block)", "is_batched(size, block)"),
        ("spans(size, shape(a)[0])", "are_spans(size, sizes_of(a)[0])"),
        ("named(a)", "are_named(a)"),
        ("handles(handle) == 1", "elements_of(handle) == 1"),
        ("slices(a)", "are_slices(a)"),
        ("stackable(a)", "are_stackable(a)"),
        ("nan_free(a, b)", "is_nan_free(a) and is_nan_free(b)"),
        ("positives(weights) > block", "positives_of(weights) > block"),
        ("results(call) == N", "results_of(call) == len(tensors_of(parts))"),
        ("parameters(call) >= 2", "parameters_of(call) >= 2"),
        (
            "dtype(parts) == out",
            "all(dtype_of(_parts) == dtype_name(out) for _parts in tensors_of(parts))",
        ),
        ("most(products(shapes)) < 9", "most_of(products_of(shapes_of(shapes))) < 9"),
        ("rank(a) == 1 and rank(b) == 2", "rank_of(a) == 1 and rank_of(b) == 2"),
        ("last(parts[-1]) <= block", "last_of(tensors_of(parts)[-1]) <= block"),
        (
            "block == 0 or block < len(held(handle))",
            "(block == 0 or block < len(known_held_of(handle)))",
        ),
        ("pairs(handle, other)", "are_pairs(handle, other)"),
        ("single(handle)", "is_single(handle)"),
        ("value(size) < shards(handle)", "value_of(size) < shards_of(handle)"),
        ("not runs", "not True"),
        ("crosses(parts, parts) < 9", "crosses_of(parts, parts) < 9"),
        ("crosses(parts, parts, parts) < 9", "crosses_of(parts, parts, parts) < 9"),
        (
            "shape(a)[0] == 1 and shape(a)[1] == 2",
            "(_sizes_of_a := sizes_of(a))[0] == 1 and _sizes_of_a[1] == 2",
        ),
        (
            "block == 0 or shape(a)[0] == shape(a)[1]",
            "(block == 0 or sizes_of(a)[0] == sizes_of(a)[1])",
        ),
        (
            "last(size) >= 1 and memory(out, contents(size))",
            "(_contents_of_size := contents_of(size))[-1] >= 1 and "
            "has_room(dtype_name(out), _contents_of_size)",
        ),
        (
            "last(size) >= 1 and (flip or memory(out, contents(size)))",
            "last_of(size) >= 1 and (flip or has_room(dtype_name(out), "
            "contents_of(size)))",
        ),
        ("rank(a, b, min) == 2", "have_ranks((2, 2, 2), a, b, min_)"),
    ],
)
def test_in_python_of_condition_calls_runtime(condition: str, expected: str) -> None:
    found = requirements.in_python(load_op(condition))
    assert found.condition == expected
    compile(found.condition, "condition", "eval")


def test_in_python_lists_arguments_and_helpers_used() -> None:
    found = requirements.in_python(load_op("rank(b) == 4", "len(strides) == 4"))
    assert [one.name for one in found.parameters] == ["b", "strides"]
    assert found.helpers == {"rank_of"}


@pytest.mark.parametrize(
    ("condition", "offset", "words"),
    [
        ("rank(a) =", 8, "is no expression"),
        ("rank(c) == 1", 5, "'rank' is of inputs, and 'c' is none"),
        ("rnak(a) == 1", 0, "calls no function of: rank, elements"),
        ("rank(block) == 1", 5, "'rank' is of inputs, and 'block' is none"),
        ("blok > 1", 0, "did you mean 'block'?"),
        ("a > 1", 0, "'a' is an input; name a property of it: rank"),
        ("block[0] > 1", 0, "'block' is a size, without parts"),
        ("1 < 2", 0, "is about no input and no attr"),
        ("block.bits > 1", 0, "has no meaning in a condition"),
        ("[block] == 1", 0, "has no meaning in a condition"),
        ("(block or flip)() == 1", 0, "calls no function"),
        ("block == (block if flip else strides)", 29, "is a row of sizes, not a size"),
        ("holds(a, T)", 6, "it takes handles, and 'a' is none"),
        ("held(a)[0] == 1", 5, "it takes handles, and 'a' is none"),
        ("pairs(a, handle)", 6, "it takes handles, and 'a' is none"),
        ("single(a)", 7, "it takes handles, and 'a' is none"),
        ("single(handle, other)", 0, "single takes 1 arguments, not 2"),
        ("rank(a[0]) == 1", 5, "'a' is one tensor, without parts"),
        ("holds(handle, block)", 14, "is no dtype"),
        ("holds(handle)", 0, "takes at least 2 arguments, not 1"),
        ("memory(T, flip)", 10, "not a size or a row of sizes"),
        ("least(block) > 1", 6, "'block' is a size, not a row of sizes"),
        ("ranks(a) == 1", 6, "'ranks' is of a list of shapes, not of 'a'"),
        ("broadcast(steps) == steps", 0, "broadcast takes 2 to 4 arguments, not 1"),
        ("steps(a, b) > 1", 0, "steps takes 3 arguments, not 2"),
        ("padded(a, block) == shape(a)", 10, "'padded' is of inputs, and 'block' is n"),
        ("einsum(a, format) == steps", 7, "'a' is no list of tensors"),
        ("indexed(parts, steps) == 0", 15, "'steps' is no attr that is text"),
        ("subscripts(parts, format)", 0, "subscripts takes 1 arguments, not 2"),
        ("writable(steps)", 9, "'steps' is no attr that is text"),
        (
            "writable(format, format, format)",
            0,
            "writable takes 1 to 2 arguments, not 3",
        ),
        ("batched(size, steps)", 14, "is a row of sizes, not a size"),
        ("results(block) == 1", 8, "'results' is of functions, and 'block' is none"),
        (
            "parameters(block) == 1",
            11,
            "'parameters' is of functions, and 'block' is none",
        ),
        (
            "min(block) > 1",
            0,
            "min takes 2 arguments, not 1 (did you mean least(block)?)",
        ),
    ],
)
def test_load_text_mistake_in_condition_is_problem(
    condition: str, offset: int, words: str
) -> None:
    text = f"op: Odd\ngroup: nn\nrequires:\n  - rank(a) == 4\n  - {condition}\n"
    if condition.startswith("["):
        text = text.replace(condition, f"'{condition}'")
        offset += 1
    _, problems = load.load_text((text + FACTS).encode(), Path("opdefs/nn/Odd.yaml"))
    (problem,) = problems
    assert (problem.line, problem.column) == (5, 5 + offset)
    assert words in problem.message and problem.message.startswith("'requires': ")


@pytest.mark.parametrize(
    ("value", "words"),
    [("[]", "'requires' is empty"), ("rank(a) == 4", "must be a list")],
)
def test_load_text_requires_of_other_kind_is_problem(value: str, words: str) -> None:
    text = f"op: Odd\ngroup: nn\nrequires: {value}\n{FACTS}"
    _, (problem,) = load.load_text(text.encode(), Path("opdefs/nn/Odd.yaml"))
    assert words in problem.message


CONDITIONS = ('format == "NCHW" or rank(a) == 4', "holds(handle, T)", "block < 2**31")


def test_dump_of_conditions_reads_back() -> None:
    op = load_op(*CONDITIONS)
    assert op.requires == CONDITIONS
    text = dump.dump(op)
    again, problems = load.load_text(text.encode(), Path("opdefs/nn/Odd.yaml"))
    assert again == op, problems


def test_with_facts_keeps_conditions() -> None:
    op = load_op(*CONDITIONS)
    facts = dataclasses.replace(op, requires=())
    assert dump.with_facts(op, facts).requires == CONDITIONS


def test_apply_renames_arguments_in_conditions() -> None:
    op = load_op("rank(a) == len(strides)", "value(size) < 2**31")
    found = renamed.apply(op, {"a": "x", "rank": "r", "size": "sizes"})
    assert found.requires == ("rank(x) == len(strides)", "value(sizes) < 2 ** 31")


def test_op_source_checks_conditions_before_fast_path() -> None:
    source = emit.op_source(load_op("rank(a) == 4", "most(strides) < 9"))
    assert "def _holds(a: object, strides: Sequence[int]) -> bool:" in source
    assert source.count("and _holds(a, strides)") == 1
    assert source.count("and _holds(a, opts.strides)") == 1
    assert "REQUIRES" in source and "rank_of" in source


def test_op_source_checks_a_broadcast_of_tensors_with_one_call() -> None:
    text = (
        "op: Odd\ngroup: nn\nrequires:\n"
        "  - extent(broadcast(shape(a), shape(b))) < 2**63\n"
        "inputs:\n  - {name: a, type: int32}\n  - {name: b, type: T}\n"
        "attrs:\n  - {name: T, type: type}\n"
    )
    op, problems = load.load_text(text.encode(), Path("opdefs/nn/Odd.yaml"))
    assert op is not None, problems
    words = " ".join(emit.op_source(op).split())
    assert (
        "(can_broadcast(a, b) or is_eager() and (type(a) is EagerTensor or"
    ) in words
    assert words.count("and _holds(a, b)") == 2
    # With another condition, only `_holds` knows the result.
    more = dataclasses.replace(op, requires=(*op.requires, "rank(a) == 4"))
    assert "can_broadcast" not in emit.op_source(more)
    # The function counts up to 2**63 only.
    less = dataclasses.replace(op, requires=(op.requires[0].replace("63", "31"),))
    assert "can_broadcast" not in emit.op_source(less)


def test_op_source_without_conditions_has_no_trace_of_them() -> None:
    op = dataclasses.replace(load_op("rank(a) == 4"), requires=())
    source = emit.op_source(op)
    assert "_holds" not in source and "REQUIRES" not in source


def test_docstring_names_conditions() -> None:
    op = load_op("rank(a) == 4", "most(strides) < 9")
    text = textwrap.dedent(docs.function(dataclasses.replace(op, summary="Adds.")))
    assert "OpError: the op refuses an argument. The call needs `rank(a) == 4`," in text
