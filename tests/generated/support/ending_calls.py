"""Calls that end the process of TensorFlow, which opwright refuses.

`python -m generated.support.ending_calls` makes them all in one process, and prints for
each the error that it got, as JSON. With `graphs`, it makes those calls in graphs that
do not know the shape of the bad input before they run.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from support import tiers
from support.places import OPDEFS, own_folder

#: The calls. A row has a `call`, or an `argument` of the example's call of its `op`,
#: and the `value` that replaces it. `raw` is the call of an op that tf.raw_ops does not
#: have. `tensorflow` is what `ending_record` found, and `upstream` the number of an
#: issue or a pull request of TensorFlow's.
TABLE = Path(__file__).with_name("process_ends.yaml")
Row = dict[str, str]
#: The seconds of the CPU and the memory that a call may take. Calls of opwright have
#: the same limit, so that no test depends on the memory that is free.
SECONDS = 20
GIBIBYTES = 2
LIMIT = "OPWRIGHT_MAX_OUTPUT_BYTES"
ENVIRONMENT = {LIMIT: str(GIBIBYTES * 2**30)}
#: The arguments of a call.
Arguments = dict[str, Any]


def _read(path: Path) -> Any:
    """A file of YAML; libyaml takes a tenth of the time of the parser in Python."""
    return yaml.load(path.read_text("utf-8"), Loader=yaml.CSafeLoader)


def rows() -> list[Row]:
    found: list[Row] = _read(TABLE)
    return found


def text_of(row: Row) -> str:
    """The call of a row."""
    return row["call"] if "call" in row else f"{row['argument']}={row['value']}"


def opdef(name: str) -> dict[str, Any]:
    (path,) = OPDEFS.glob(f"*/{name}.yaml")
    found: dict[str, Any] = _read(path)
    return found


def bent_by_conditions() -> Iterator[Row]:
    """Calls that do not meet the simplest conditions of all opdefs."""
    for path in sorted(OPDEFS.glob("*/*.yaml")):
        text = path.read_text()
        if "\nrequires:\n" not in text or "ref: true" in text:
            continue
        found = _read(path)
        if ">>> with tf.Graph()" in found["example"]:
            continue
        inputs = found.get("inputs", [])
        lists = {arg["name"] for arg in inputs if "count" in arg}
        lists |= {arg["name"] for arg in inputs if "types" in arg}
        for condition in found["requires"]:
            for argument, value in _against(condition):
                bent = f"[{value}]" if argument in lists else value
                yield {"op": found["op"], "argument": argument, "value": bent}


def _against(condition: str) -> Iterator[tuple[str, str]]:
    """Arguments that do not meet a condition, if it is of a simple form."""
    match ast.parse(condition, mode="eval").body:
        case ast.Compare(ast.Call(ast.Name("elements"), names), [ast.Eq()], _):
            for each in names:
                yield ast.unparse(each), "like(old, [0])"
                yield ast.unparse(each), "like(old, [17])"
        case ast.Compare(
            ast.Call(ast.Name("rank"), names), [ast.Eq()], [ast.Constant(int() as rank)]
        ):
            for each in names:
                yield ast.unparse(each), f"like(old, [1] * {rank + 1})"
                yield ast.unparse(each), f"like(old, [1] * {rank - 1})"
        case ast.Call(ast.Name("holds"), [*handles, _]):
            for each in handles:
                yield ast.unparse(each), "tf.Variable(np.int8([1, 2])).handle"


def main(*modes: str) -> None:
    os.chdir(tempfile.mkdtemp())
    made = bent_in_graph if modes == ("graphs",) else refusal
    for row in rows_of(*modes):
        told = {"op": row["op"], "call": text_of(row), **made(row)}
        print(json.dumps(told), flush=True)


def rows_of(*modes: str) -> list[Row]:
    """The calls that are made; `make test` makes a part of the calls that are bent."""
    if modes:
        return rows()
    return [*rows(), *tiers.part_of(list(bent_by_conditions()))]


def refusal(row: Row) -> dict[str, Any]:
    """The outcome of a call."""
    if "call" in row:
        return outcome(lambda: eval(row["call"], _names()))
    # A refused call changes none of the example's tensors: other rows take them too.
    found = _changed(row, _example_once)
    if found is None:
        return {"refused": None, "message": "the example does not call the function"}
    made, arguments, spelled, new = found
    return outcome(lambda: made(**{**arguments, spelled: new}))


def raw(row: Row) -> None:
    """Makes a call with tf.raw_ops."""
    import numpy as np
    import tensorflow as tf

    import opwright
    from opwright_runtime.types import as_dtype

    if "call" in row:
        eval(row.get("raw", row["call"]), {**_names(), "r": tf.raw_ops})
        return
    found = _changed(row, run_example)
    assert found is not None, row
    _, arguments, spelled, new = found
    cls = opwright.op_class(row["op"])
    names = {python: name for name, python in cls.PYTHON_NAMES.items()}
    given = {names.get(name, name): value for name, value in arguments.items()}
    given[names.get(spelled, spelled)] = new
    for arg in cls.op_def.inputs:
        # TensorFlow would cast an array to the default of an attr.
        if isinstance(given.get(arg.name), (np.ndarray, np.generic)):
            given[arg.name] = tf.constant(given[arg.name], arg.dtype)
    attrs = {}
    for attr in cls.op_def.attrs:
        value = given.get(attr.name, attr.default)
        # Inputs decide what has no value.
        if value is not None:
            if attr.kind == "type":
                value = as_dtype(value)
            elif attr.kind == "list(type)":
                value = [*map(as_dtype, value)]
            attrs[attr.name] = value
    if hasattr(tf.raw_ops, row["op"]):
        changed = {name: attrs[name] for name in attrs.keys() & given.keys()}
        getattr(tf.raw_ops, row["op"])(**given | changed)
        return
    tensors = [tf.convert_to_tensor(given[arg.name]) for arg in cls.op_def.inputs]
    execute(row["op"], *tensors, *(part for pair in attrs.items() for part in pair))


def execute(op: str, *arguments: Any) -> Any:
    """Runs an op as the functions of tf.raw_ops do.

    Args:
        arguments: its inputs, and then the name and the value of each attr.
    """
    from tensorflow.python import pywrap_tfe
    from tensorflow.python.eager import context

    context.ensure_initialized()
    return pywrap_tfe.TFE_Py_FastPathExecute(context.context(), op, None, *arguments)


def outcome(call: Any) -> dict[str, Any]:
    import opwright

    try:
        call()
    except opwright.OpError as error:
        early = error.__cause__ is None
        return {"refused": error.op if early else "", "message": str(error)}
    except Exception as error:
        return {"refused": "", "message": f"{type(error).__name__}: {error}"}
    return {"refused": "", "message": "the call was made"}


def bent_in_graph(row: Row) -> dict[str, Any]:
    """The outcome in a graph that checks its ops when it runs.

    It also runs with the example's own argument, which has to pass.
    """
    import tensorflow as tf

    import opwright

    skipped = {"refused": None, "message": "it has no such input in a graph"}
    if "call" in row:
        return skipped
    name, argument = row["op"], row["argument"]
    info = opwright.op_class(name).op_def
    inputs = {arg.name: arg for arg in info.inputs}
    if argument not in inputs or inputs[argument].is_list:
        return skipped
    found = _changed(row, run_example)
    if found is None:
        return skipped
    made, arguments, spelled, new = found
    bad = tf.convert_to_tensor(new)
    if bad.dtype in (tf.resource, tf.variant):
        return skipped
    try:
        good = tf.convert_to_tensor(arguments[spelled], bad.dtype)
        call = tf.function(lambda x: made(**{**arguments, spelled: x}), autograph=False)
        with opwright.checked():
            graph = call.get_concrete_function(tf.TensorSpec(None, bad.dtype))
    except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
        # Another dtype, an op without a kernel, an output that is an operation.
        return {**skipped, "message": str(error)}
    outcomes = []
    for tensor in (good, bad):
        try:
            graph(tensor)
            outcomes.append("the call was made")
        except Exception as error:
            outcomes.append(str(error))
    passed, message = outcomes
    if "must hold" in passed:
        return {"refused": "", "message": f"its own argument: {passed}"}
    return {"refused": name if "must hold" in message else "", "message": message}


def _changed(
    row: Row, example: Callable[[str], tuple[Any, dict[str, Any], list[Arguments]]]
) -> tuple[Any, Arguments, str, Any] | None:
    """The function of an op, the arguments of the example's call, and another one."""
    import opwright

    function, names, calls = example(row["op"])
    if not calls:
        return None
    arguments, argument = calls[0], row["argument"]
    spelled = opwright.op_class(row["op"]).PYTHON_NAMES.get(argument, argument)
    new = eval(row["value"], names | {"old": arguments.get(spelled)})
    return function, arguments, spelled, new


def run_example(name: str) -> tuple[Any, dict[str, Any], list[Arguments]]:
    """Runs the example of an op.

    Returns:
        The op's function, the names of the example, and the arguments of its calls.
    """
    import opwright

    module = sys.modules[opwright.op_class(name).__module__]
    names = {**_names(), **{n: getattr(module, n) for n in module.__all__}}
    function = module.__all__[-1]
    calls: list[Arguments] = []
    names[function] = _recorder(names[function], calls)
    examples = doctest.DocTestParser().get_examples(f"{opdef(name)['example']}\n")
    code = "\n".join(example.source.rstrip("\n") for example in examples)
    # Some ops have no kernel here, but their calls are refused before that.
    without_kernel = contextlib.suppress(opwright.OpKernelError)
    with contextlib.redirect_stdout(io.StringIO()), without_kernel:
        exec(code, names)
    return getattr(module, function), names, calls


@cache
def _example_once(name: str) -> tuple[Any, dict[str, Any], list[Arguments]]:
    with own_folder():
        return run_example(name)


def _recorder(function: Any, calls: list[Arguments]) -> Any:
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]

    def recorded(*arguments: Any, **keywords: Any) -> Any:
        calls.append({**dict(zip(names, arguments, strict=False)), **keywords})
        return function(*arguments, **keywords)

    return recorded


def _names() -> dict[str, Any]:
    import numpy as np
    import tensorflow as tf

    import opwright
    from opwright import Scope, raw_ops

    kept = []

    def handle(value: Any = (1.0, 2.0)) -> Any:
        kept.append(tf.Variable(value))
        return kept[-1].handle

    def bare() -> Any:
        """A handle that no variable of Python stands for."""
        made = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="bare")
        value = tf.constant([1.0, 2.0])
        tf.raw_ops.AssignVariableOp(resource=made, value=value)
        return made

    def data_set(keys: Any, values: Any) -> Any:
        made = tf.data.Dataset.from_tensor_slices((keys, values))
        kept.append(made)
        return made._variant_tensor

    def same() -> Any:
        function = tf.function(lambda x: x)
        return function.get_concrete_function(tf.TensorSpec([], tf.float32))

    def in_session(make: Any) -> Any:
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            return session.run(make())

    def like(old: Any, shape: list[int]) -> Any:
        """A tensor of the dtype of `old`, or of its first part."""
        if isinstance(old, list) and old and not isinstance(old[0], (int, float)):
            old = old[0]
        one = tf.convert_to_tensor(0 if old is None else old)
        if one.dtype == tf.float64 and not hasattr(old, "dtype"):
            one = tf.cast(one, tf.float32)
        if one.dtype == tf.variant:
            while one.shape.rank:
                one = one[0]
            for size in reversed(shape):
                one = tf.stack([one] * size)
            return one
        if one.dtype.is_quantized:
            return tf.cast(tf.zeros(shape), one.dtype)
        flat = tf.reshape(one, [-1])
        filled = flat[:1] if flat.shape[0] else tf.zeros([1], one.dtype)
        return tf.broadcast_to(tf.reshape(filled, [1] * len(shape)), shape)

    return {
        "np": np,
        "tf": tf,
        "opwright": opwright,
        "Scope": Scope,
        "r": raw_ops,
        "one": lambda *shape: np.ones(shape, np.float32),
        "handle": handle,
        "bare": bare,
        "data_set": data_set,
        "execute": execute,
        "same": same,
        "in_session": in_session,
        "like": like,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
