"""The docs of an op's class have the facts in the docs of TensorFlow's wrapper.

Run by test_golden.py, in a process of its own.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import odd_ops
import pytest
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.framework import _pywrap_python_op_gen

from opwright_codegen import naming

#: It is documented by hand.
BY_HAND = "OddProse"
#: Words of the wrapper around facts: field names, and one name of a dimension, which a
#: shape in Python cannot have.
WORDS_AROUND = re.compile(
    r'Tensor|tf\.(TensorShape|DTypes?)|ints|[tT]rue|[fF]alse|"rows"'
)
STRING = r'"(?:[^"\\]|\\.)*"'


def op_defs() -> dict[str, Any]:
    library = pywrap_tf_session.TF_LoadLibrary(os.environ["ODD_OPS_LIBRARY"])
    listed = op_def_pb2.OpList.FromString(pywrap_tf_session.TF_GetOpList(library))
    return {op.name: op for op in listed.op if op.name != BY_HAND}


OP_DEFS = op_defs()


def wrapper(op_def: Any) -> str:
    """The docstring that tf.load_op_library gives the function of an op, if any.

    Read off its source: names that are words of Python keep it from being loaded, and
    of an op called Lambda it makes nothing.
    """
    one = op_def_pb2.OpList(op=[op_def]).SerializeToString()
    source = _pywrap_python_op_gen.GetPythonWrappers(one).decode()
    pattern = r'^def (?!_).*?:\n  r"""(.*?)^  """'
    found = re.search(pattern, source, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def words(text: str) -> str:
    return " ".join(text.split())


def shown(name: str) -> str:
    """The text of help() for an op's class: docstrings, and defaults of options."""
    cls = odd_ops.op_class(name)
    docs = [cls.__doc__, cls.create.__doc__]
    if options := getattr(cls, "Options", None):
        docs += [options.__doc__, inspect.signature(options)]
    return words("\n".join(map(str, docs)))


def prose(head: str) -> Iterator[str]:
    """The rows above the arguments, without marks that docstrings do not have."""
    for row in head.removeprefix("TODO: add doc.").splitlines():
        row = re.sub(r"^ *(?:#+ |```.*| *\w+(?: \(\w+\))?: )", "", row)
        if row.strip() and not re.fullmatch(r" *\w+:", row):
            yield words(row)


def entries(section: str, names: list[str]) -> Iterator[tuple[str, str]]:
    """The arguments of a section, each with its text."""
    found = re.split(r"^ {4}(\w+): ", section, flags=re.MULTILINE)
    if len(found) == 1 and names:
        found = ["", names[0], section]
    for name, text in zip(found[1::2], found[2::2], strict=True):
        # The wrapper's own escape of a word of Python.
        name = name if name in names else name.removesuffix("_")
        if name in names:
            yield name, words(text)


def facts(text: str) -> Iterator[str]:
    """Types, values and numbers in a text of the wrapper."""
    for quoted in re.findall(r"`([^`]*)`|at least (\d+)", text):
        for word in re.findall(
            rf"{STRING}|-?[\w.]+(?:(?<=e)[+-]\d+)?", "".join(quoted)
        ):
            if not WORDS_AROUND.fullmatch(word):
                yield word


def mentions(text: str, fact: str) -> bool:
    if fact.startswith('"'):
        value = ast.literal_eval(f"b{fact}")
        forms = (repr(value), repr(value.decode("utf-8", "replace"))[1:-1])
        return any(form in text for form in forms)
    try:
        number = np.float32(fact)
    except ValueError:
        fact = fact.removeprefix("tf.")
        return {"half": "float16"}.get(fact, fact.rstrip("s")) in text
    found = re.findall(r"-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|inf|nan)\b", text)
    values = np.array(found, np.float32)
    # A dimension of any size is None here.
    return (
        bool(np.isclose(number, values, 1e-5, 0, equal_nan=True).any()) or number == -1
    )


@pytest.mark.parametrize("name", OP_DEFS)
def test_op_class_docs_have_the_texts_of_the_wrapper(name: str) -> None:
    op_def, text = OP_DEFS[name], shown(name)
    head, _, rest = wrapper(op_def).partition("\n  Args:\n")
    arguments, _, results = rest.partition("\n  Returns:\n")
    for row in prose(head):
        assert row in text
    parts = {a.name: a for a in (*op_def.input_arg, *op_def.attr)}
    made = {a.name: a for a in op_def.output_arg}
    described = [
        *((parts[n], said) for n, said in entries(arguments, list(parts))),
        *((made[n], said) for n, said in entries(results, list(made))),
    ]
    given = {part.name for part, _ in described}
    if head:
        assert {a.name for a in (*op_def.input_arg, *op_def.output_arg)} <= given
    for part, said in described:
        own = words(part.description)
        assert own in said and own in text
        if "Proto" in said:  # The text of a protocol buffer; here it is an array.
            continue
        for fact in facts(said.replace(own, "")):
            # "The same type as `x`" is the name of a type here, which both have.
            assert fact in given or mentions(text, fact), (part.name, fact)


@pytest.mark.parametrize("name", OP_DEFS)
def test_op_class_arguments_of_the_wrapper_are_typed(name: str) -> None:
    cls = odd_ops.op_class(name)
    typed = dict(cls.create.__annotations__)
    if options := getattr(cls, "Options", None):
        typed |= options.__annotations__
    arguments = wrapper(OP_DEFS[name]).partition("\n  Args:\n")[2]
    arguments = arguments.partition("\n  Returns:\n")[0]
    parts = [a.name for a in (*OP_DEFS[name].input_arg, *OP_DEFS[name].attr)]
    for argument, _ in entries(arguments, parts):
        assert not re.search(r"\bAny\b", typed[naming.argument(argument)]), argument
