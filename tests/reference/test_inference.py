"""The shapes of opdefs match TensorFlow's own shape functions."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from opwright_codegen import load
from opwright_codegen.model import Arg, Op
from reference.support import inference
from reference.support.judge import Judgement, judge, refuses
from support.grouped import check_each, every_op_by_group
from support.opdefs import every_op
from support.tiers import part_of
from support.versions import installed_ops

#: How many ops are checked at least.
ENOUGH = 1250

_judged: dict[str, Judgement] = {}


def judged(name: str) -> Judgement:
    if name not in _judged:
        _judged[name] = judge(installed_ops()[name])
    return _judged[name]


@pytest.mark.partial
@every_op_by_group()
def test_opdef_shapes_match_shape_inference(names: list[str]) -> None:
    def check(name: str) -> None:
        assert list(judged(name).wrong) == []

    check_each(part_of(names), check)


@pytest.mark.full_matrix
def test_opdef_shapes_checked_ops_are_enough() -> None:
    checked = [name for name in installed_ops() if judged(name).counts]
    print(f"{len(checked)} of {len(installed_ops())} ops are checked")
    assert len(checked) >= ENOUGH


def with_shapes(name: str, **shapes: str) -> Op:
    """An op of the tree with other shapes, as a file would say them."""
    op = every_op()[name]

    def changed(arg: Arg) -> Arg:
        return dataclasses.replace(arg, shape=shapes[arg.name])

    return dataclasses.replace(
        op,
        inputs=tuple(map(changed, op.inputs)),
        outputs=tuple(map(changed, op.outputs)),
        unchecked=None,
    )


GOOD = """
MatMul
a: m k if not transpose_a else k m
b: k n if not transpose_b else n k
product: m n

BatchMatMulV2
x: *x m k if not adj_x else *x k m
y: *y k n if not adj_y else *y n k
output: broadcast(x, y) m n

ConcatV2
values: replace(x, axis, n[i])
axis: scalar
output: replace(x, axis, sum(n))

Transpose
x: *x
perm: len(x)
y: permute(x, perm)

Fill
dims: r
value: scalar
output: *dims

GatherNd
params: *p
indices: *n k
output: *n *p[k:]

Where
input: *x
index: _ len(x)

IdentityN
input: *x[i]
output: *x[i]

TensorListStack
input_handle: scalar of *element_shape
element_shape: r
tensor: _ *element_shape

SplitV
value: *x where x[split_dim] == sum(size_splits)
size_splits: num_split
split_dim: scalar
output: replace(x, split_dim, size_splits[i])

Unpack
value: *x where x[axis] == num
output: remove(x, axis)

TopKV2
input: *batch n where n >= k
k: scalar
values: *batch k
indices: *batch k

SparseConcat
indices: n[i] r
values: n[i]
shapes: r
output_indices: sum(n) r
output_values: sum(n)
output_shape: r
"""

# A wrong output, inputs that the notation allows and TensorFlow refuses, and a swapped
# condition.
WRONG = """
MatMul
a: m k if not transpose_a else k m
b: k n if not transpose_b else n k
product: n m

Transpose
x: *x
perm: len(x)
y: *x

MatMul
a: *a
b: *b
product: ...

BiasAdd
value: *v
bias: n
output: *v

MatMul
a: m k if transpose_a else k m
b: k n if not transpose_b else n k
product: m n

ConcatV2
values: *x
axis: scalar
output: *x
"""


def blocks(text: str) -> list[str]:
    return text.strip().split("\n\n")


def op_of(block: str) -> Op:
    """An op with the shapes that a block gives it."""
    name, *rows = block.split("\n")
    return with_shapes(name, **dict(row.split(": ") for row in rows))


def name_of(block: str) -> str:
    return block.partition("\n")[0]


@pytest.mark.parametrize("block", blocks(GOOD), ids=name_of)
def test_inference_check_right_shapes_pass(block: str) -> None:
    verdict = inference.check(op_of(block))
    assert verdict.wrong == []
    assert verdict.counts


@pytest.mark.parametrize("block", blocks(WRONG), ids=name_of)
def test_inference_check_wrong_shapes_fail(block: str) -> None:
    verdict = inference.check(op_of(block))
    assert verdict.wrong and not verdict.counts


def test_inference_check_open_output_is_not_determined() -> None:
    shapes = {"a": "m k", "b": "k n", "product": "..."}
    op = with_shapes("MatMul", **shapes)
    op = dataclasses.replace(op, check_with=(("transpose_a", (False,)),))
    assert not inference.check(op).determined


def test_inference_check_too_strict_shapes_give_a_hint() -> None:
    """TensorFlow accepts shapes that the notation excludes."""
    verdict = inference.check(with_shapes("Neg", x="m n", y="m n"))
    assert verdict.constrained and verdict.refused[0] == 0
    assert not verdict.counts
    assert any("takes" in hint for hint in verdict.lax)


def test_inference_check_too_loose_shapes_give_a_hint() -> None:
    verdict = inference.check(with_shapes("Neg", x="*x", y="..."))
    assert "y: TensorFlow knows the rank" in verdict.lax[0]


def test_inference_check_impossible_shapes_are_reported() -> None:
    op = with_shapes("Neg", x="*x where len(x) > 5", y="*x")
    (wrong,) = inference.check(op).wrong
    assert "no shapes that fit were found" in wrong


def test_refuses_op_with_reference_input_is_false() -> None:
    """A reference belongs to the session of the example, which has ended."""
    assert not refuses(every_op()["AssignAdd"].source)


def test_judge_unchecked_op_that_can_be_checked_is_wrong() -> None:
    op = dataclasses.replace(every_op()["MatMul"], unchecked="The op needs a device.")
    assert "can be checked" in judge(op).wrong[0]


EXPAND = """
op: ExpandDims
group: array
example: |-
  >>> expand_dims([1, 2], 0).numpy()

# ---- Imported facts; by hand below: doc, shape, message, replacement. ----
inputs:
  - {{name: input, type: T, shape: '*x'}}
  - {{name: dim, type: Tdim, shape: {dim}}}
outputs:
  - {{name: output, type: T, shape: ...}}
attrs:
  - {{name: T, type: type}}
  - {{name: Tdim, type: type, default: int32, allowed: [int32, int64]}}
attr_order: [T, Tdim]
"""


@pytest.mark.parametrize(("dim", "refused"), [("scalar", True), ("...", False)])
def test_refuses_input_that_only_the_kernel_refuses(
    tmp_path: Path, dim: str, refused: bool
) -> None:
    path = tmp_path / "array" / "ExpandDims.yaml"
    path.parent.mkdir()
    path.write_text(EXPAND.format(dim=dim))
    assert load.load_text(path.read_bytes(), path)[1] == []
    assert refuses(str(path)) is refused


ADD = """
op: AddN
group: math
example: |-
  >>> add_n([[1, 2], [3, 4]]).numpy()

# ---- Imported facts; by hand below: doc, shape, message, replacement. ----
inputs:
  - {{name: inputs, type: T, count: N, shape: {inputs}}}
outputs:
  - {{name: sum, type: T, shape: ...}}
attrs:
  - {{name: N, type: int, minimum: 1}}
  - {{name: T, type: type}}
"""


@pytest.mark.parametrize(("inputs", "refused"), [("'*x'", True), ("...", False)])
def test_refuses_list_input_that_only_the_kernel_refuses(
    tmp_path: Path, inputs: str, refused: bool
) -> None:
    path = tmp_path / "math" / "AddN.yaml"
    path.parent.mkdir()
    path.write_text(ADD.format(inputs=inputs))
    assert load.load_text(path.read_bytes(), path)[1] == []
    assert refuses(str(path)) is refused


def test_judge_unchecked_op_with_deciding_attrs_is_right() -> None:
    op = every_op()["LoadAllTPUEmbeddingParameters"]
    assert judge(op).wrong == ()
    assert judge(dataclasses.replace(op, unchecked=None)).wrong
