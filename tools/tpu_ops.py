"""Tries where each op compiles: XLA for the CPU, and libtpu for each kind of TPU.

    python tools/tpu_ops.py                  every op, in some minutes
    python tools/tpu_ops.py MatMul Cumsum    some, whose rows alone change

What is compiled is the first eager call of the op in the example of its opdef. Inputs
are arguments of the program; integers become constants of it where XLA demands that, as
of sizes and axes. float64 becomes float32, and int64 int32 where XLA's kernel lacks it.
The table goes to runs_on.json of the runtime.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [
    str(ROOT / name) for name in ("generated", "runtime", "codegen", "tests")
]

import tensorflow as tf
from rich.console import Console
from rich.progress import Progress
from tensorflow.python.framework import op_def_library

from opwright_codegen import load, write
from opwright_codegen.model import Op
from opwright_runtime import kernels, runs_on
from opwright_runtime._internals import compiler_ir
from opwright_runtime.tpu_check import (
    CHIPS,
    TpuCheckError,
    compiler,
    lowering,
    op_kernels,
)
from reference.support import examples

OUTPUT = ROOT / "runtime/opwright_runtime/runs_on.json"
NO_KERNEL = "XLA has no kernel for it"
NO_SHAPE = ", and its results have no static shape"
#: Why an input has to be a constant, in the words of TensorFlow's compiler.
_CONSTANT = re.compile(
    r"compile-time constant|must be a constant|static value"
    r"|known (at|when the program is) compile"
)
#: A dimension of a size that values decide: `s32[<=4]`.
_DYNAMIC = re.compile(r"\[[^\]]*<=")
#: What a call with 64 bits is also made with.
_NARROW = {
    tf.float64: tf.float32,
    tf.complex128: tf.complex64,
    tf.int64: tf.int32,
    tf.uint64: tf.uint32,
}
#: What lists of examples hold.
_ELEMENTS = (tf.float32, tf.int32, tf.int64, tf.float64)
#: Seconds for one op, and for one chip, after which the process is stopped.
_TIMEOUT = 120
#: What messages say of where they come from.
_NOISE = re.compile(
    r"\{\{\w*node [^}]*\}\}:? ?|\[Op:[^]]*\]|^[A-Z_]+: "
    r"|^Detected unsupported operations[^:]*: "
)
#: How much of a reason is kept.
_LONGEST = 160


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ops", nargs="*", metavar="OP")
    parser.add_argument(
        "--output", type=Path, help="another file, with these ops alone"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--lower-into", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.lower_into:
        return lower_all(options.ops, options.lower_into)
    console = Console(stderr=True)
    try:
        compiler.require(tuple(CHIPS))
    except TpuCheckError as error:
        console.print(f"tpu_ops.py: {error}")
        return 2
    ops, problems = load.load_all(ROOT / "opdefs")
    known = {op.name: op for op in ops}
    unknown = [name for name in options.ops if name not in known]
    if problems or unknown:
        console.print("\n".join([*map(str, problems), *unknown]))
        return 2
    chosen = [known[name] for name in options.ops] or list(ops)
    kept = options.ops and not options.output
    before = json.loads(OUTPUT.read_text())["ops"] if kept else {}
    rows = before | tried(chosen, options.jobs, console)
    versions = {name: version(name) for name in ("tensorflow", "libtpu")}
    texts = (f"{json.dumps(op)}: {json.dumps(row)}" for op, row in sorted(rows.items()))
    content = ",\n".join(texts)
    head = json.dumps(versions)
    text = f'{{"tried_with": {head},\n"ops": {{\n{content}\n}}}}\n'
    write.write(options.output or OUTPUT, text.encode())
    done = [row for row in rows.values() if not isinstance(row, str)]
    for target in runs_on.TARGETS:
        print(f"{target}: {sum(target not in row for row in done)} ops compile")
    print(f"{len(rows) - len(done)} could not be tried, of {len(rows)}")
    return 0


def tried(ops: Sequence[Op], jobs: int, console: Console) -> dict[str, Any]:
    """By op: by target why it does not compile, or why nothing was tried."""
    rows: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory() as name,
        Progress(console=console) as progress,
        ThreadPoolExecutor(jobs) as pool,
    ):
        folder = Path(name)
        task = progress.add_task("XLA", total=len(ops))
        for op_name, row in lowered_each([op.name for op in ops], folder):
            rows[op_name] = row
            progress.advance(task)
        modules = sorted(folder.glob("*.hlo"))
        tasks = {chip: progress.add_task(chip, total=len(modules)) for chip in CHIPS}

        def compiled(chip: str) -> list[tuple[str, str | None]]:
            found = []
            for one in compile_all(chip, modules):
                found.append(one)
                progress.advance(tasks[chip])
            return found

        for chip, found in zip(CHIPS, pool.map(compiled, CHIPS), strict=True):
            for stem, error in found:
                if error is not None:
                    rows[stem.replace(".", ">")][chip] = _short(error)
    return rows


def lowered_each(names: Sequence[str], folder: Path) -> Iterator[tuple[str, Any]]:
    """The same of ops by name, in a process that TensorFlow may take down."""
    command = [sys.executable, __file__, "--lower-into", str(folder)]
    for name, row, end in outlived(command, names, {}):
        if end is not None:
            row = dict.fromkeys(runs_on.TARGETS, f"TensorFlow, compiling it, {end}")
        yield name, row


def lower_all(names: Sequence[str], folder: Path) -> int:
    """What such a process does: a line for each op, and a module for libtpu."""
    known = {op.name: op for op in load.load_all(ROOT / "opdefs")[0]}
    for name in names:
        signal.alarm(_TIMEOUT)
        row, module = lowered(known[name])
        if module is not None:
            (folder / f"{name.replace('>', '.')}.hlo").write_bytes(module)
        print(json.dumps([name, row]), flush=True)
    return 0


def lowered(op: Op) -> tuple[Any, bytes | None]:
    """The row of an op as far as XLA decides it, and the module for libtpu."""
    if not any(row.device == "XLA" for row in kernels.kernels(op.name)):
        return NO_KERNEL + (NO_SHAPE if makes_no_static_shape(op) else ""), None
    if op.example is None or not examples.runs(op):
        return "no example that runs here", None
    try:
        calls = examples.run(op).calls
    except Exception as error:
        return _short(f"its example fails: {error}"), None
    if not calls:
        return "no example that runs here", None
    eager = (call for call in calls if not of_graph(call))
    if (call := next(eager, None)) is None:
        return "its example makes a graph of its own", None
    return compiled_call(op, call)


def makes_no_static_shape(op: Op) -> bool:
    """Whether TensorFlow knows no shape of results of constants."""
    foreign = {dtype.name for dtype in op_kernels.FOREIGN}
    if (
        op.is_stateful
        or op.example is None
        or any(str(arg.dtype) in foreign for arg in (*op.inputs, *op.outputs))
        or not examples.runs(op)
    ):
        return False
    try:
        call = next(call for call in examples.run(op).calls if not of_graph(call))
        concrete, _ = traced(op, call, _everything, [])
    except Exception:
        return False
    (node,) = (one for one in concrete.graph.get_operations() if one.type == op.name)
    tensors = [*node.inputs, *node.outputs]
    return not any(one.dtype in op_kernels.FOREIGN for one in tensors) and not all(
        one.shape.is_fully_defined() for one in node.outputs
    )


def of_graph(call: examples.Call) -> bool:
    """Whether a call was made in a graph, whose tensors are no use elsewhere."""
    return any(map(tf.is_symbolic_tensor, tf.nest.flatten(list(call.inputs))))


def compiled_call(op: Op, call: examples.Call) -> tuple[Any, bytes | None]:
    reason = ""
    dynamic: bytes | None = None
    for constant in (_none, _integers, _everything):
        try:
            concrete, specs = traced(op, call, constant, [])
            if missing := no_kernel(op, concrete):
                reason = missing
                break
            generate = compiler_ir.from_concrete_function(concrete, specs)
            module: bytes = generate(stage="hlo_serialized")
            generate(stage="optimized_hlo")
            if not _DYNAMIC.search(generate(stage="hlo")):
                return {}, module
            # Sizes that constants may settle; if not, values do.
            dynamic = dynamic or module
        except Exception as error:
            words = _short(lowering.sentence(str(error)))
            reason = reason or words
            if not _CONSTANT.search(str(error)):
                reason = words
                break
    if dynamic is not None:
        return {}, dynamic
    return dict.fromkeys(runs_on.TARGETS, reason), None


def no_kernel(op: Op, concrete: Any) -> str | None:
    """Why no kernel of XLA's fits the call in a function."""
    nodes = (node for node in concrete.graph.get_operations() if node.type == op.name)
    return next(filter(None, map(op_kernels.no_kernel, nodes)), None)


def _none(tensor: tf.Tensor) -> bool:
    return False


def _integers(tensor: tf.Tensor) -> bool:
    return bool(tensor.dtype.is_integer and tensor.shape.num_elements() <= 64)


def _everything(tensor: tf.Tensor) -> bool:
    return True


def traced(
    op: Op,
    call: examples.Call,
    constant: Callable[[tf.Tensor], bool],
    given: list[tf.Tensor],
) -> tuple[Any, list[tf.TensorSpec]]:
    """A function of the call's inputs, but those that are constants.

    `given` gets the values of the inputs.
    """
    #: For each input what makes it within the function, of the function's arguments.
    makers: list[Any] = []
    dtypes = dtypes_of(op, call)

    def argument(tensor: tf.Tensor) -> Callable[[Sequence[Any]], Any]:
        given.append(tensor)
        number = len(given) - 1
        return lambda arguments: arguments[number]

    def maker(value: Any, dtype: tf.DType | None) -> Callable[[Sequence[Any]], Any]:
        if tf.is_tensor(value) and value.dtype == tf.variant:
            # A program cannot be given a list, but make one.
            elements = elements_of(value)
            made = argument(elements)
            shape = elements.shape[1:]
            return lambda arguments: tf.raw_ops.TensorListFromTensor(
                tensor=made(arguments), element_shape=shape
            )
        if tf.is_tensor(value) and dtype is not None and value.dtype != dtype:
            value = tf.cast(value, dtype)
        tensor = tf.convert_to_tensor(value, dtype)
        # A variable is captured, as in any function.
        if tensor.dtype == tf.resource:
            return lambda arguments: tensor
        # Texts are no values of XLA's.
        if tensor.dtype == tf.string or constant(tensor):
            return lambda arguments: tf.constant(tensor.numpy(), tensor.dtype)
        return argument(tensor)

    attrs = {name: dtypes.get(name, value) for name, value in call.attrs.items()}
    for arg, value in zip(op.inputs, call.inputs, strict=True):
        dtype = dtypes.get(arg.type_attr or "")
        if arg.dtype is not None:
            dtype = tf.as_dtype(str(arg.dtype))
        makers.append(
            [maker(one, dtype) for one in value] if arg.is_list else maker(value, dtype)
        )

    def function(*arguments: Any) -> Any:
        inputs = {
            arg.name: (
                [one(arguments) for one in made]
                if isinstance(made, list)
                else made(arguments)
            )
            for arg, made in zip(op.inputs, makers, strict=True)
        }
        *_, made = op_def_library._apply_op_helper(
            op.name, name=None, **inputs, **attrs
        )
        # Lists stay within the program; without outputs it is an operation.
        outputs = tf.nest.flatten(made)
        kept = [x for x in outputs if tf.is_tensor(x) and x.dtype != tf.variant]
        with tf.control_dependencies(outputs):
            return [tf.identity(x) for x in kept] or tf.constant(0)

    specs = [tf.TensorSpec(one.shape, one.dtype) for one in given]
    return tf.function(function, autograph=False).get_concrete_function(*specs), specs


def elements_of(handle: tf.Tensor) -> tf.Tensor:
    """What a list holds; TensorFlow does not say of which dtype that is."""
    for dtype in _ELEMENTS:
        try:
            return tf.raw_ops.TensorListStack(
                input_handle=handle, element_shape=-1, element_dtype=dtype
            )
        except tf.errors.InvalidArgumentError:
            continue
    raise ValueError("its list has no elements, or elements of several shapes")


def dtypes_of(op: Op, call: examples.Call) -> Mapping[str, tf.DType]:
    """The dtype of each type attr, from the first input that has one.

    In half as many bits where the call has 64 and XLA's kernel, or a TPU, has none.
    """
    found: dict[str, tf.DType] = {}
    for settled in (True, False):
        for arg, value in zip(op.inputs, call.inputs, strict=True):
            for one in value if arg.is_list else [value]:
                if arg.type_attr and arg.type_attr not in found:
                    if hasattr(one, "dtype"):
                        found[arg.type_attr] = tf.as_dtype(one.dtype)
                    elif not settled:
                        default = op.attr(arg.type_attr).default
                        dtype = tf.as_dtype(str(default)) if default else None
                        tensor = tf.convert_to_tensor(one, dtype)
                        found[arg.type_attr] = tensor.dtype
    for name, value in call.attrs.items():
        if op.attr(name).kind == "type":
            found[name] = tf.as_dtype(value)
    if any(str(arg.dtype) == "resource" for arg in op.inputs):
        return found  # A variable has the dtype that it has.
    served = [row.dtypes for row in kernels.kernels(op.name) if row.device == "XLA"]
    for name, dtype in found.items():
        of_attr = {one for row in served for one in row.get(name, ())}
        if dtype.is_integer and dtype in of_attr:
            continue
        if (narrow := _NARROW.get(dtype)) in of_attr:
            found[name] = narrow
    return found


def compile_all(chip: str, modules: Sequence[Path]) -> Iterator[tuple[str, str | None]]:
    """What libtpu says of each module: None, or why not. It may take a process down."""
    command = [sys.executable, "-c", _WORKER, CHIPS[chip].topology]
    environment = {**compiler.ENVIRONMENT, "PYTHONPATH": _PATH}
    for name, error, end in outlived(command, list(map(str, modules)), environment):
        yield Path(name).stem, error if end is None else f"libtpu's compiler {end}"


def outlived(
    command: Sequence[str], names: Sequence[str], environment: Mapping[str, str]
) -> Iterator[tuple[str, Any, str | None]]:
    """What a process prints of each name in turn, or how one of them has ended it.

    The process prints `[name, result]`, a line each. Another one goes on with the names
    after one that has ended it.
    """
    left = list(names)
    while left:
        process = subprocess.Popen(
            [*command, *left],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith('["'):
                name, result = json.loads(line)
                left.remove(name)
                yield name, result, None
        timed_out = process.wait() == -signal.SIGALRM
        if left:
            words = f"takes over {_TIMEOUT} s" if timed_out else "ends its process"
            yield left.pop(0), None, words


_PATH = os.pathsep.join(filter(None, sys.path))
#: Compiles modules one after the other, each with an alarm.
_WORKER = f"""
import json, signal, sys
from opwright_runtime.tpu_check import worker
topology, *modules = sys.argv[1:]
for module in modules:
    signal.alarm({_TIMEOUT})
    found = worker.compile_for(topology, module)
    print(json.dumps([module, found.get("error")]), flush=True)
"""


def _short(text: str) -> str:
    """The first sentence of a message, of a length for tables."""
    line = text.strip().splitlines()[0] if text.strip() else "no reason was given"
    line = _NOISE.sub("", line).strip()
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


if __name__ == "__main__":
    sys.exit(main())
