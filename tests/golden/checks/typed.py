"""What type checkers make of calls of the goldens. Checked, never run."""

from __future__ import annotations

from odd_ops.args import (
    OddCounts,
    OddMixed,
    odd_counts,
    odd_inferred,
    odd_list_output,
    odd_mixed,
    odd_no_output,
)
from odd_ops.attrs import OddEnums, odd_enums, odd_required, odd_tensors
from odd_ops.dtypes import (
    OddDefaultDtype,
    OddRequiredDtype,
    OddTwoDtypes,
    odd_default_dtype,
    odd_required_dtype,
    odd_two_dtypes,
)
from odd_ops.names import If, OddReserved, if_, odd_collisions, odd_reserved
from typing_extensions import assert_type

from opwright_runtime.scope import Scope
from opwright_runtime.types import (
    AnyDType,
    DTypeLike,
    Output,
    TFloat32,
    TInt32,
    TInt64,
    TString,
)


def dtypes(
    x: Output[TFloat32], s: Output[TString], dtype: DTypeLike, scope: Scope
) -> None:
    assert_type(odd_required_dtype(x, TInt64), OddRequiredDtype[TInt64])
    assert_type(odd_required_dtype(x, dtype).output, Output[AnyDType])
    assert_type(odd_default_dtype(s), OddDefaultDtype[TString, TInt32])
    assert_type(
        odd_default_dtype(s, out_type=TFloat32), OddDefaultDtype[TString, TFloat32]
    )
    assert_type(odd_two_dtypes(), OddTwoDtypes[TFloat32, TInt64])
    assert_type(
        OddTwoDtypes.create(scope, OddTwoDtypes.Options(seed=1), Tb=TString),
        OddTwoDtypes[TFloat32, TString],
    )
    assert_type(odd_two_dtypes(Ta=TInt32).a, Output[TInt32])
    assert_type(odd_two_dtypes(Ta=TInt32, Tb=TString).b, Output[TString])


def lists(x: Output[TFloat32]) -> None:
    op = odd_counts([1, 2], [x, x], [1.0])
    assert_type(op, OddCounts[TFloat32])
    assert_type(op.x, list[Output[TInt32]])
    assert_type(op.y, list[Output[TFloat32]])
    mixed = odd_mixed([x, 1, "text"], [TInt32, "float32"])
    assert_type(mixed, OddMixed)
    assert_type(mixed.outputs, list[Output[AnyDType]])
    assert_type(odd_list_output(2).outputs, list[Output[TFloat32]])
    assert_type(odd_inferred(x, [1.0]).inputs.more, list[Output[TFloat32]])
    odd_no_output([x])


def attrs(scope: Scope) -> None:
    options = OddEnums.Options(mode="fast").with_modes(["x"])
    assert_type(options, OddEnums.Options)
    assert_type(OddEnums.create(scope, "b c", options), OddEnums)
    odd_enums("", modes=("x", "y"))
    odd_required(1, 1.0, True, b"s", TInt32, [None], 1.5, [1], ["int32"])
    odd_tensors(value=[[1], [2]])


def names(x: Output[TFloat32]) -> None:
    op = odd_reserved(in_=x, lambda_=x, class_=1, def_=2)
    assert_type(op, OddReserved)
    assert_type(op.is_, Output[TFloat32])
    assert_type(op.inputs.class_, int)
    collided = odd_collisions(x, 1, "b", x, T=TInt32, Output_=1, name="n")
    assert_type(collided.options_, Output[TFloat32])
    assert_type(collided.inputs.self_, Output[TFloat32])
    assert_type(if_(True, [x], [TFloat32], "then", "else"), If)
