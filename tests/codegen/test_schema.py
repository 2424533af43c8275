"""opdefs/schema.json: what editors check opdefs with."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema
import pytest
import yaml

from opwright_codegen import form, load, schema
from support.places import OPDEFS

VALIDATOR = jsonschema.Draft202012Validator(schema.schema())


def example() -> Any:
    path = OPDEFS / "nn" / "CudnnRNNV3.yaml"
    return yaml.load(path.read_text("utf-8"), Loader=yaml.CSafeLoader)


def test_schema_file_is_as_generated() -> None:
    text = (OPDEFS / "schema.json").read_text("utf-8")
    assert (
        text == schema.text()
    ), "run python -m opwright_codegen.schema > opdefs/schema.json"
    VALIDATOR.check_schema(json.loads(text))


def test_schema_keys_by_hand_equal_form() -> None:
    top = schema.schema()
    tables = [
        top["properties"]["deprecated"],
        top["$defs"]["arg"],
        top["$defs"]["attr"],
    ]

    def by_hand(table: Any) -> set[str]:
        return {
            key
            for key, value in table["properties"].items()
            if value.get("description", "").startswith("By hand: ")
        }

    assert by_hand(top) | {"op"} == set(form.ABOVE)
    assert set().union(*map(by_hand, tables)) == set(form.BY_HAND_BELOW)


@pytest.mark.rotating
@pytest.mark.slow
def test_schema_accepts_every_opdef() -> None:
    wrong = {
        path.name: error.message
        for path in load.find(OPDEFS)
        for error in VALIDATOR.iter_errors(
            yaml.load(path.read_text("utf-8"), Loader=yaml.CSafeLoader)
        )
    }
    assert wrong == {}


@pytest.mark.parametrize(
    ("where", "key", "value"),
    [
        ((), "colour", "blue"),
        ((), "group", "NN"),
        ((), "stateful", "yes"),
        ((), "kernels", {"CPU": "somebody"}),
        (("inputs", 0), "dtype", "float"),
        (("inputs", 0), "types", "T"),
        (("options", 0), "type", "strin"),
        (("options", 0), "allowed", []),
        (("options", 0), "minimum", "one"),
    ],
)
def test_schema_rejects_mistakes(where: tuple[Any, ...], key: str, value: Any) -> None:
    document = copy.deepcopy(example())
    VALIDATOR.validate(document)
    part = document
    for step in where:
        part = part[step]
    part[key] = value
    assert not VALIDATOR.is_valid(document)
