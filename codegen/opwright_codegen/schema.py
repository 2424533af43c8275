"""The JSON schema of an opdef, for completion and checks in editors.

`load.py` is stricter: it also checks to what names refer, and the path of the file.
"""

from __future__ import annotations

import json
from typing import Any

from opwright_codegen import load
from opwright_codegen.model import GRADIENTS
from opwright_codegen.types import BOUNDS, DTYPES, KINDS

Schema = dict[str, Any]


def _matching(pattern: str) -> Schema:
    return {"type": "string", "pattern": f"^{pattern}$"}


_ARG_NAME = _matching(load.ARG_NAME)
_ATTR_NAME = _matching(load.ATTR_NAME)
_OP_NAME = _matching(load.OP_NAME)
_TEXT = {"type": "string", "minLength": 1}
_FLAG = {"type": "boolean"}
_VERSION = _matching(load.VERSION)


def _table(needed: tuple[str, ...], **keys: Schema) -> Schema:
    return {
        "type": "object",
        "properties": keys,
        "required": list(needed),
        "additionalProperties": False,
    }


def _described(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def schema() -> Schema:
    """The schema, as JSON Schema 2020-12."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "opdef",
        "description": "Definition of one TensorFlow op.",
        **_op(),
        "$defs": {"arg": _arg(), "attr": _attr(), "full_type": _full_type()},
    }


def _arg() -> Schema:
    """The schema of an input or output."""
    dtypes = sorted(DTYPES)
    arg = _table(
        ("name",),
        name=_described(_ARG_NAME, "As the OpDef names it."),
        type=_described(
            {"anyOf": [{"enum": dtypes}, _ATTR_NAME]},
            "A dtype, or an attr of kind type.",
        ),
        types=_described(
            _ATTR_NAME, "For a list of any dtypes: an attr of list(type)."
        ),
        count=_described(
            _ATTR_NAME, "For a list of one dtype: the attr of its length."
        ),
        ref=_described(_FLAG, "Whether it is a reference, which only graphs have."),
        full_type=_described({"$ref": "#/$defs/full_type"}, "Its FullTypeDef."),
        shape=_described(
            _TEXT, "By hand: m k if not transpose_a else k m; scalar; ..."
        ),
        doc=_described(_TEXT, "By hand: what it is, in a sentence or two."),
    )
    arg["oneOf"] = [{"required": ["type"]}, {"required": ["types"]}]
    return arg


def _attr() -> Schema:
    """The schema of an attr or option."""
    return _table(
        ("name", "type"),
        name=_described(_ATTR_NAME, "As the OpDef names it."),
        type=_described({"enum": list(KINDS)}, "The kind of its values."),
        default={
            "description": "A value of its kind; a shape is a list or 'unknown', a"
            " string that is not UTF-8 {hex: ff00}."
        },
        allowed=_described(
            {"type": "array", "items": {"type": "string"}, "minItems": 1},
            "Of kind string or type: the values that are allowed.",
        ),
        minimum=_described(
            {"type": "integer"}, "Of an int: the least value. Of a list: its length."
        ),
        since=_described(_VERSION, "The TensorFlow that it came with, if newer."),
        allowed_since=_described(
            {"type": "object", "additionalProperties": _VERSION},
            "Of values that are newer than the attr: the TensorFlow they came with.",
        ),
        dropped_in=_described(
            _VERSION, "Of an option: the first TensorFlow without it, if there is one."
        ),
        message=_described(
            _matching(load.MESSAGE),
            "By hand: of a string that is a serialized message, the message's name.",
        ),
        doc=_described(_TEXT, "By hand: meaning, unit, what special values mean."),
    )


def _full_type() -> Schema:
    """The schema of a FullTypeDef."""
    return _table(
        ("type_id",),
        type_id=_matching(load.FULL_TYPE_ID),
        s={"type": "string"},
        args=_list({"$ref": "#/$defs/full_type"}),
    )


def _deprecated() -> Schema:
    """The schema of the key `deprecated`."""
    return _table(
        ("version",),
        version=_described(
            {"type": "integer", "minimum": 0}, "GraphDefs from it on refuse the op."
        ),
        explanation={"type": "string"},
        replacement=_described(_OP_NAME, "By hand: the op to use instead."),
    )


def _op() -> Schema:
    """The schema of an opdef."""
    return _table(
        ("op", "group"),
        op=_described(_OP_NAME, "OP_NAME; the file has the same name."),
        group=_described(
            _matching(load.GROUP),
            "By hand: the package that the class goes to, and the file's folder.",
        ),
        summary=_described(_TEXT, "By hand: one line that ends with a period."),
        description=_described(_TEXT, "By hand: paragraphs."),
        example=_described(_TEXT, "By hand: a doctest, one to six lines of code."),
        check_with=_described(
            {"type": "object", "additionalProperties": {"type": "array"}},
            "By hand: by attr or input, the values that shapes are checked with.",
        ),
        unchecked=_described(_TEXT, "By hand: why no test can check its shapes."),
        truncated=_described(
            {"type": "object", "additionalProperties": {"enum": sorted(BOUNDS)}},
            "By hand: by input or attr, the dtype that kernels truncate integers to.",
        ),
        requires=_described(
            {"type": "array", "items": _TEXT, "minItems": 1},
            "By hand: conditions without which a call may end the process:"
            " rank(input) == 4.",
        ),
        **_facts(),
        **_parts(),
    )


def _facts() -> dict[str, Schema]:
    """The schemas of the properties of the op itself, not of its arguments."""
    return {
        "stateful": _FLAG,
        "commutative": _FLAG,
        "aggregate": _FLAG,
        "allows_uninitialized_input": _FLAG,
        "distributed_communication": _FLAG,
        "gradient": _described(
            {"enum": list(GRADIENTS)}, "What TensorFlow's registry of gradients has."
        ),
        "deprecated": _deprecated(),
        "since": _described(
            _VERSION, "The TensorFlow that the op came with, if newer."
        ),
        "dropped_in": _described(
            _VERSION, "The first TensorFlow without the op, if there is one."
        ),
        "gradient_of": _described(_OP_NAME, "By hand: the op that it differentiates."),
        "kernels": _described(
            _table((), **{d: {"enum": list(load.PROVIDERS)} for d in load.DEVICES}),
            "By hand: kernels that opwright's own library brings.",
        ),
        "tpu_only": _described(
            _TEXT, "By hand: why an op of TPUs has no kernel elsewhere, in a clause."
        ),
    }


def _parts() -> dict[str, Schema]:
    """The schemas of the lists of inputs, outputs, attrs and options."""
    return {
        "inputs": _list({"$ref": "#/$defs/arg"}),
        "outputs": _list({"$ref": "#/$defs/arg"}),
        "attrs": _described(
            _list({"$ref": "#/$defs/attr"}),
            "Settled by inputs, or arguments of create.",
        ),
        "options": _described(
            _list({"$ref": "#/$defs/attr"}),
            "With a default, inferred from no input: fields of Options.",
        ),
        "attr_order": _described(
            _list(_ATTR_NAME), "The OpDef's order, where the sections change it."
        ),
        "imported_text": _described(
            _list({"type": "string"}),
            "Digests of the library's own texts: one that is edited stays as it is.",
        ),
    }


def text() -> str:
    """The text of opdefs/schema.json."""
    return json.dumps(schema(), indent=2) + "\n"


if __name__ == "__main__":
    print(text(), end="")
