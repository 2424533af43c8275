"""Tries where each op compiles: XLA for the CPU, and libtpu for each kind of TPU.

    python tools/tpu_ops.py                  every op, in some minutes
    python tools/tpu_ops.py MatMul Cumsum    some, whose rows alone change

What is compiled is the first call of the op in the example of its opdef. Inputs are
arguments of the program; integers become constants of it where XLA demands that, as of
sizes and axes. The table goes to runs_on.json of the runtime.
"""

from __future__ import annotations

import argparse
import json
import os
import re
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
from opwright_runtime.tpu_check import CHIPS, TpuCheckError, compiler, lowering
from support.reference import examples

OUTPUT = ROOT / "runtime/opwright_runtime/runs_on.json"
NO_KERNEL = "XLA has no kernel for it"
#: Why an input has to be a constant, in the words of TensorFlow's compiler.
_CONSTANT = re.compile(r"compile-time constant|must be a constant|known at compile")
#: Seconds for one op and chip, after which libtpu is stopped.
_PATIENCE = 120.0
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
    left = list(names)
    while left:
        done = 0
        process = subprocess.Popen(
            [sys.executable, __file__, "--lower-into", str(folder), *left],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith('{"op"'):
                result = json.loads(line)
                yield result["op"], result["row"]
                done += 1
        process.wait()
        if done < len(left):
            died = "TensorFlow ends the process when it compiles this"
            yield left[done], dict.fromkeys(runs_on.TARGETS, died)
            done += 1
        left = left[done:]


def lower_all(names: Sequence[str], folder: Path) -> int:
    """What such a process does: a line for each op, and a module for libtpu."""
    known = {op.name: op for op in load.load_all(ROOT / "opdefs")[0]}
    for name in names:
        row, module = lowered(known[name])
        if module is not None:
            (folder / f"{name.replace('>', '.')}.hlo").write_bytes(module)
        print(json.dumps({"op": name, "row": row}), flush=True)
    return 0


def lowered(op: Op) -> tuple[Any, bytes | None]:
    """The row of an op as far as XLA decides it, and the module for libtpu."""
    if not any(row.device == "XLA" for row in kernels.kernels(op.name)):
        return NO_KERNEL, None
    if op.example is None or not examples.runs(op):
        return "no example that runs here", None
    try:
        calls = examples.run(op).calls
    except Exception as error:
        return _short(f"its example fails: {error}"), None
    if not calls:
        return "no example that runs here", None
    return compiled_call(op, calls[0])


def compiled_call(op: Op, call: examples.Call) -> tuple[Any, bytes | None]:
    reason = ""
    for constant in (_none, _integers, _everything):
        try:
            concrete, specs = traced(op, call, constant)
            generate = compiler_ir.from_concrete_function(concrete, specs)
            module: bytes = generate(stage="hlo_serialized")
            generate(stage="optimized_hlo")
            return {}, module
        except Exception as error:
            words = _short(lowering._sentence(str(error)))
            reason = reason or words
            if not _CONSTANT.search(str(error)):
                reason = words
                break
    return dict.fromkeys(runs_on.TARGETS, reason), None


def _none(tensor: tf.Tensor) -> bool:
    return False


def _integers(tensor: tf.Tensor) -> bool:
    return bool(tensor.dtype.is_integer and tensor.shape.num_elements() <= 64)


def _everything(tensor: tf.Tensor) -> bool:
    return True


def traced(
    op: Op, call: examples.Call, constant: Callable[[tf.Tensor], bool]
) -> tuple[Any, list[tf.TensorSpec]]:
    """A function of the call's inputs, but those that are constants."""
    given: list[Any] = []
    #: For each input its tensors: a number among the arguments, or a value.
    places: list[Any] = []

    def placed(value: Any, dtype: tf.DType | None) -> Any:
        tensor = tf.convert_to_tensor(value, dtype)
        if tensor.dtype in (tf.resource, tf.variant) or not constant(tensor):
            given.append(tensor)
            return len(given) - 1
        return tensor.numpy()

    dtypes = dtypes_of(op, call)
    for arg, value in zip(op.inputs, call.inputs, strict=True):
        dtype = dtypes.get(arg.type_attr or "")
        if arg.dtype is not None:
            dtype = tf.as_dtype(str(arg.dtype))
        places.append(
            [placed(one, dtype) for one in value]
            if arg.is_list
            else placed(value, dtype)
        )

    def function(*tensors: Any) -> Any:
        def back(place: Any) -> Any:
            if isinstance(place, list):
                return [back(one) for one in place]
            return tensors[place] if isinstance(place, int) else tf.constant(place)

        inputs = {
            arg.name: back(place) for arg, place in zip(op.inputs, places, strict=True)
        }
        *_, made = op_def_library._apply_op_helper(
            op.name, name=None, **inputs, **call.attrs
        )
        # Without outputs it is an operation, which the function has to run.
        if isinstance(made, tf.Operation):
            with tf.control_dependencies([made]):
                return tf.constant(0)
        return made

    specs = [tf.TensorSpec(one.shape, one.dtype) for one in given]
    return tf.function(function, autograph=False).get_concrete_function(*specs), specs


def dtypes_of(op: Op, call: examples.Call) -> Mapping[str, tf.DType]:
    """The dtype of each type attr, which the first input that has one settles."""
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
    return found


def compile_all(chip: str, modules: Sequence[Path]) -> Iterator[tuple[str, str | None]]:
    """What libtpu says of each module: None, or why not. It may take a process down."""
    left = list(modules)
    while left:
        done = 0
        process = subprocess.Popen(
            [sys.executable, "-c", _WORKER, CHIPS[chip].topology, *map(str, left)],
            env={**os.environ, **compiler._ENVIRONMENT, "PYTHONPATH": _PATH},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                result = json.loads(line)
                yield Path(result["module"]).stem, result.get("error")
                done += 1
        process.wait()
        if done < len(left):
            # The one that it was at has killed it.
            yield left[done].stem, "libtpu's compiler died of it"
            done += 1
        left = left[done:]


_PATH = os.pathsep.join(filter(None, sys.path))
#: Compiles modules one after the other, each with an alarm.
_WORKER = f"""
import json, os, signal, sys, tempfile
from opwright_runtime.tpu_check import worker
topology, *modules = sys.argv[1:]
signal.signal(signal.SIGALRM, signal.SIG_DFL)
for module in modules:
    signal.alarm({int(_PATIENCE)})
    with tempfile.NamedTemporaryFile("r") as result:
        worker.main(topology, module, result.name)
        found = json.load(open(result.name))
    print(json.dumps({{"module": module, "error": found.get("error")}}), flush=True)
"""


def _short(text: str) -> str:
    """The first sentence of a message, of a length for tables."""
    line = text.strip().splitlines()[0] if text.strip() else "no reason was given"
    line = re.sub(r"\{\{node [^}]*\}\}:? ?|\[Op:[^]]*\]|^[A-Z_]+: ", "", line).strip()
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


if __name__ == "__main__":
    sys.exit(main())
