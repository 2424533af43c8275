"""Types as values, and what an attr is to a caller."""

from __future__ import annotations

import pytest

from opwright_codegen.model import Arg, Attr, Op, Role
from opwright_codegen.types import (
    DTYPES,
    FAMILIES,
    RUNTIME,
    AttrKind,
    DTypeName,
    PyType,
    either,
    named,
    one_of_dtypes,
)


def test_pytype_nested_is_spelled_and_walked() -> None:
    variable = PyType("T")
    literal = named("Literal", PyType('"Output, [x]"'))
    one = named("tuple", named("Output", variable) | literal, PyType("..."))
    assert str(one) == 'tuple[Output[T] | Literal["Output, [x]"], ...]'
    modules = {part.name: part.module for part in one.walk() if part.module}
    assert modules == {"Output": RUNTIME, "Literal": "typing"}
    assert variable in one.walk() and PyType("Output") not in one.walk()


def test_either_and_one_of_dtypes_spell_alternatives() -> None:
    assert either([named("int")]) == named("int")
    assert str(either([named("int"), named("bool")])) == "int | bool"
    assert str(one_of_dtypes(None)) == "TType"
    assert str(one_of_dtypes(("float",))) == "TFloat32"
    assert str(one_of_dtypes(("int64", "bool", "int32"))) == "TIndex | TBool"
    for family, members in FAMILIES.items():
        assert str(one_of_dtypes(members)) == family
    assert {part.module for part in one_of_dtypes(tuple(DTYPES)).args} == {RUNTIME}


def test_named_unknown_name_raises() -> None:
    with pytest.raises(KeyError):
        named("Iterator")


def test_op_role_of_each_attr_is_expected() -> None:
    dtype = DTypeName("float")
    op = Op(
        name="Some",
        group="nn",
        inputs=(Arg("x", type_attr="T", count="N"),),
        attrs=(
            Attr("T", AttrKind("type"), default=dtype),
            Attr("N", AttrKind("int")),
            Attr("axis", AttrKind("int"), default=0),
            Attr("out", AttrKind("type"), default=dtype),
            Attr("size", AttrKind("int")),
            Attr("to", AttrKind("type")),
            Attr("types", AttrKind("list(type)"), default=(dtype,)),
        ),
    )
    roles = [op.role(attr) for attr in op.attrs]
    assert roles == [
        Role.INFERRED,
        Role.INFERRED,
        Role.OPTION,
        Role.KEYWORD,
        Role.ARGUMENT,
        Role.ARGUMENT,
        Role.OPTION,
    ]
    assert [attr.name for attr in op.arguments] == ["size", "to"]
    assert [attr.name for attr in op.keywords] == ["out"]
    assert [attr.name for attr in op.options] == ["axis", "types"]
    assert op.inferred == {"T", "N"}
    assert [attr.name for attr in op.given] == ["axis", "out", "size", "to", "types"]
