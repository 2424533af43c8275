"""Ops imported from the group that they lay in before they moved to another."""

from typing_extensions import assert_type

from opwright import Output, Scope, TFloat32, TInt32, array, core
from opwright.core import Reshape, reshape
from opwright.core.shape import Shape, ShapeInputs, shape
from opwright.core.split import Split, split
from opwright.dtypes import cast


def a_name_of_the_old_package() -> None:
    x = cast([1, 2], TFloat32)
    scope = Scope.current()
    assert_type(reshape(x, [2, 1]), Output[TFloat32])
    assert_type(Reshape.create(scope, x, [2, 1]), Reshape[TFloat32])
    assert_type(core.reshape(x, [2, 1]), Output[TFloat32])
    assert_type(core.Reshape.create(scope, x, [2, 1]), array.Reshape[TFloat32])


def a_name_of_the_old_module() -> None:
    x = cast([1, 2], TFloat32)
    scope = Scope.current()
    assert_type(split(0, x, 2), list[Output[TFloat32]])
    assert_type(Split.create(scope, 0, x, 2), Split[TFloat32])
    assert_type(Split.create(scope, 0, x, 2), array.Split[TFloat32])
    assert_type(shape(x), Output[TInt32])
    assert Shape.Inputs is ShapeInputs
