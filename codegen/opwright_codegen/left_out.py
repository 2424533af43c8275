"""Ops of the registry that have no classes: TensorFlow's test ops, and opwright's own.

Test ops live in the registry of every wheel (tensorflow/core/framework/test_ops,
tensorflow/python/framework/test_ops); some crash the process on purpose.
"""

from __future__ import annotations

from typing import Final

TEST_OPS: Final = frozenset(
    (
        *("A", "Attr", "AttrBool", "AttrBoolList", "AttrDefault"),
        *("AttrEmptyListDefault", "AttrEnum", "AttrEnumList", "AttrFloat"),
        *("AttrListDefault", "AttrListMin", "AttrListTypeDefault", "AttrMin"),
        *("AttrPartialShape", "AttrPartialShapeList", "AttrShape", "AttrShapeList"),
        *("AttrTypeDefault", "B", "Binary", "ComplexStruct", "ConstructionFails"),
        *("CopyOp", "DefaultAttrs", "DevicePlacementOp", "DtypeWithDefaultOp"),
        *("FiveFloatOutputs", "FloatInput", "FloatOutput", "FloatOutputStringOutput"),
        *("Foo1", "Foo2", "Foo3", "FuncAttr", "FuncListAttr", "GetDeadline"),
        *("GraphDefVersion", "InPolymorphicTwice", "Int64Output", "IntAttr"),
        *("IntInput", "IntInputFloatInput", "IntInputIntOutput", "IntOutput"),
        *("IntOutputFloatOutput", "IsResourceHandleRefCounting"),
        *("IsTensorFloat32Enabled", "KernelLabel", "KernelLabelRequired", "ListInput"),
        *("ListOutput", "MakeWeakResourceHandle", "MixedStruct", "NInPolymorphicTwice"),
        *("NInTwice", "NInTwoTypeVariables", "NIntsIn", "NIntsOut", "NIntsOutDefault"),
        *("NPolymorphicIn", "NPolymorphicOut", "NPolymorphicOutDefault"),
        *("NPolymorphicRestrictIn", "NPolymorphicRestrictOut"),
        *("Namespace>TestStringOutput", "None", "Old", "OpWithDefaultAttr"),
        *("OpWithFutureDefaultAttr", "OutT", "OutTypeList", "OutTypeListRestrict"),
        *("Polymorphic", "PolymorphicDefaultOut", "PolymorphicOut", "RefIn"),
        *("RefInputFloatInput", "RefInputFloatInputIntOutput", "RefInputIntInput"),
        *("RefOut", "RefOutput", "RefOutputFloatOutput", "RequiresOlderGraphVersion"),
        *("ReservedAttr", "ReservedInput", "ResourceCreateOp", "ResourceInitializedOp"),
        *("ResourceUsingOp", "Restrict", "Simple", "SimpleStruct", "SleepIdentityOp"),
        *("SleepOp", "StringListAttr", "StubResourceHandleOp", "TestAttr"),
        *("TestStringOutput", "TwoFloatInputs", "TwoFloatInputsFloatOutput"),
        *("TwoFloatInputsIntOutput", "TwoFloatOutputs", "TwoIntInputs"),
        *("TwoIntOutputs", "TwoRefsIn", "TypeList", "TypeListRestrict"),
        *("TypeListTwice", "Unary"),
    )
)
#: Ops that `import opwright` registers itself: of functions that alone call them.
OWN_OPS: Final = frozenset({"OpwrightEmbeddingLookup", "OpwrightKerasRNN"})
