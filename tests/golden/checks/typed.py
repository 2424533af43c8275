"""What type checkers make of calls of the goldens. Checked, never run."""

from __future__ import annotations

from odd_ops.args import (
    OddCounts,
    OddInferred,
    odd_counts,
    odd_list_output,
    odd_mixed,
    odd_no_output,
)
from odd_ops.args.odd_counts import OddCountsOutputs
from odd_ops.args.odd_mixed import OddMixedOutputs
from odd_ops.attrs import OddEnums, odd_enums, odd_required, odd_tensors
from odd_ops.dtypes import (
    OddTwoDtypes,
    odd_default_dtype,
    odd_required_dtype,
    odd_two_dtypes,
)
from odd_ops.dtypes.odd_default_dtype import OddDefaultDtypeOutputs
from odd_ops.dtypes.odd_required_dtype import OddRequiredDtypeOutputs
from odd_ops.dtypes.odd_two_dtypes import OddTwoDtypesOutputs
from odd_ops.names import (
    OddCollisions,
    OddReserved,
    if_,
    odd_collisions,
    odd_reserved,
)
from odd_ops.names.odd_reserved import OddReservedOutputs
from typing_extensions import assert_type

from opwright_runtime.api import Scope
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
    assert_type(odd_required_dtype(x, TInt64), OddRequiredDtypeOutputs[TInt64])
    assert_type(odd_required_dtype(x, dtype).output, Output[AnyDType])
    assert_type(odd_default_dtype(s), OddDefaultDtypeOutputs[TString, TInt32])
    assert_type(
        odd_default_dtype(s, out_type=TFloat32),
        OddDefaultDtypeOutputs[TString, TFloat32],
    )
    assert_type(odd_two_dtypes(), OddTwoDtypesOutputs[TFloat32, TInt64])
    assert_type(
        OddTwoDtypes.create(scope, OddTwoDtypes.Options(seed=1), Tb=TString),
        OddTwoDtypes[TFloat32, TString],
    )
    assert_type(odd_two_dtypes(Ta=TInt32).a, Output[TInt32])
    assert_type(odd_two_dtypes(Ta=TInt32, Tb=TString).b, Output[TString])


def lists(x: Output[TFloat32], scope: Scope) -> None:
    found = odd_counts([1, 2], [x, x], [1.0])
    assert_type(found, OddCountsOutputs[TFloat32])
    assert_type(found.x, list[Output[TInt32]])
    assert_type(found.y, list[Output[TFloat32]])
    op = OddCounts.create(scope, [1, 2], [x, x], [1.0])
    assert_type(op, OddCounts[TFloat32])
    assert_type(op.y, list[Output[TFloat32]])
    mixed = odd_mixed([x, 1, "text"], [TInt32, "float32"])
    assert_type(mixed, OddMixedOutputs)
    assert_type(mixed.outputs, list[Output[AnyDType]])
    assert_type(odd_list_output(2), list[Output[TFloat32]])
    one = OddInferred.create(scope, x, [1.0])
    assert_type(one.inputs.more, list[Output[TFloat32]])
    assert_type(one.y, Output[TFloat32])
    assert_type(one + 1, Output[TFloat32])
    odd_no_output([x])


def attrs(scope: Scope) -> None:
    options = OddEnums.Options(mode="fast").with_modes(["x"])
    assert_type(options, OddEnums.Options)
    assert_type(OddEnums.create(scope, "b c", options), OddEnums)
    odd_enums("", modes=("x", "y"))
    odd_required(1, 1.0, True, b"s", TInt32, [None], 1.5, [1], ["int32"])
    odd_tensors(value=[[1], [2]])


def names(x: Output[TFloat32], scope: Scope) -> None:
    found = odd_reserved(in_=x, lambda_=x, class_=1, def_=2)
    assert_type(found, OddReservedOutputs)
    assert_type(found.is_, Output[TFloat32])
    assert_type(OddReserved.create(scope, x, x, 1).inputs.class_, int)
    collided = odd_collisions(x, 1, "b", x, T=TInt32, Output_=1, name="n")
    assert_type(collided.options_, Output[TFloat32])
    made = OddCollisions.create(scope, x, 1, "b", x, TInt32)
    assert_type(made.inputs.self_, Output[TFloat32])
    assert_type(if_(True, [x], [TFloat32], "then", "else"), list[Output[AnyDType]])
