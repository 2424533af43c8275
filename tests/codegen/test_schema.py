"""opdefs/schema.json: what editors check opdefs with."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from opwright_codegen import load, schema

OPDEFS = Path(__file__).parents[2] / "opdefs"
VALIDATOR = jsonschema.Draft202012Validator(schema.schema())


def example() -> Any:
    path = OPDEFS / "nn" / "CudnnRNNV3.yaml"
    return yaml.load(path.read_text("utf-8"), Loader=yaml.CSafeLoader)


def test_the_file_is_what_the_code_says() -> None:
    text = (OPDEFS / "schema.json").read_text("utf-8")
    assert (
        text == schema.text()
    ), "run python -m opwright_codegen.schema > opdefs/schema.json"
    VALIDATOR.check_schema(json.loads(text))


def test_every_opdef_is_valid() -> None:
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
def test_mistakes_are_found(where: tuple[Any, ...], key: str, value: Any) -> None:
    document = copy.deepcopy(example())
    VALIDATOR.validate(document)
    part = document
    for step in where:
        part = part[step]
    part[key] = value
    assert not VALIDATOR.is_valid(document)
