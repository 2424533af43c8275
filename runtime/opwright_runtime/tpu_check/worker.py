"""Compiles one HLO module for TPUs, in a process of its own, because libtpu may crash.

    python -m opwright_runtime.tpu_check.worker HLO TOPOLOGY ...

Reads the module from the file HLO and compiles it for each topology in turn. Prints a
line of JSON with the result of each. It does not import TensorFlow.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

# jax is an optional dependency, so type checkers may not find it.
jax: Any = import_module("jax")
topologies: Any = import_module("jax.experimental.topologies")
ir: Any = import_module("jax.extend.mlir.ir")
mlir: Any = import_module("jax.interpreters.mlir")
xla_client: Any = import_module("jaxlib.xla_client")
_to_stablehlo: Any = xla_client._xla.mlir.hlo_to_stablehlo


def main(hlo: str, *wanted: str) -> None:
    # stdout must contain only results, but libtpu prints to it, too. So its output is
    # redirected to stderr.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for topology in wanted:
        print(json.dumps(compile_for(topology, hlo)), file=answers, flush=True)


def compile_for(topology: str, hlo: str) -> dict[str, object]:
    """The sizes and estimates, or the error, and the duration of the compilation."""
    device: Any = topologies.get_topology_desc(topology, platform="tpu").devices[0]
    start = time.monotonic()
    try:
        with mlir.make_ir_context():
            module = ir.Module.parse(_to_stablehlo(Path(hlo).read_bytes()))
            _drop_copies(module)
            executable = device.client.compile(
                # The last jax for Python 3.10 needs bytecode, newer ones the module.
                _bytecode(module) if jax.__version_info__ < (0, 10) else module,
                xla_client.DeviceList((device,)),
                xla_client.CompileOptions(),
            )
        found: dict[str, object] = _facts(executable)
    except Exception as error:
        found = {"error": str(error)}
    found["seconds"] = time.monotonic() - start
    return found


def _drop_copies(module: Any) -> None:
    """Removes the copies that TensorFlow inserts before the new values of variables.

    StableHLO has no copy op. libtpu inserts copies itself where buffers need them.
    """
    copies: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == "mhlo.copy":
            copies.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for copy in copies:
        copy.results[0].replace_all_uses_with(copy.operands[0])
        copy.erase()


def _bytecode(module: Any) -> bytes:
    buffer = BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def _facts(executable: Any) -> dict[str, object]:
    memory = executable.get_compiled_memory_stats()
    cost = executable.cost_analysis()
    return {
        "argument_bytes": memory.argument_size_in_bytes,
        "output_bytes": memory.output_size_in_bytes,
        "alias_bytes": memory.alias_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        "code_bytes": memory.generated_code_size_in_bytes,
        "flops": cost.get("flops"),
        "bytes_accessed": cost.get("bytes accessed"),
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
