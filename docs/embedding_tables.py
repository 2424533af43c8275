"""Renews the tables of docs/reference/embedding_ops.md.

Which ops run here is in the opdefs, and held there against the registry by a test; what
there is of optimizers, the native library says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf
from tensorflow.core.protobuf.tpu.optimization_parameters_pb2 import (
    OptimizationParameters,
)

from opwright_codegen import load
from opwright_codegen.model import Op
from opwright_runtime import native
from opwright_runtime.embedding import optimizers

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "embedding_ops.md"

#: Names of the ops of TPU embeddings; the ops of a TPU system's setup belong to them.
FAMILY = re.compile(
    r"TPUEmbedding|Dedup|CooTensor|SparseCore|SparseDenseMatmul|Minibatch"
    r"|XlaSparse(Activations|Gradients)|ConfigureDistributedTPU|InitializeGlobalTPU"
    r"|WithDynamicShape"
    r"|Shutdown(Distributed)?TPU|GlobalIterId|TpuTaskId|UpdateTaskId"
)
#: The table's parts, in its order: a title, and the ops that are not in one before.
PARTS = (
    (
        "Set-up",
        r"^(Configure|Shutdown|Is|Execute|Collate|Connect|Finalize|GetTpu|Update)",
    ),
    ("Enqueue", r"Enqueue"),
    ("Step", r"^(Recv|Send|TPUEmbeddingActivations)|TPUEmbedding(Act|Gradients)"),
    ("Load and retrieve", r"^(Load|Retrieve)"),
    ("Deduplication", r"Dedup"),
    ("SparseCore", r""),
)


def family() -> list[Op]:
    """The ops of TPU embeddings, by name."""
    ops, problems = load.load_all(ROOT / "opdefs")
    if problems:
        raise SystemExit("\n".join(map(str, problems)))
    return sorted((op for op in ops if FAMILY.search(op.name)), key=lambda op: op.name)


def ops_table() -> Iterator[str]:
    """Every op of the family, and where it runs."""
    ops = family()
    here = sum(1 for op in ops if op.kernels)
    yield f"{len(ops)} ops, of which {here} run here. GPU: where the library was"
    yield "[built with CUDA](../how-to/gpu.md#under-tensorflow).\n"
    yield "| op | runs |"
    yield "|---|---|"
    for title, pattern in PARTS:
        part = [op for op in ops if re.search(pattern, op.name)]
        ops = [op for op in ops if op not in part]
        yield f"| **{title}** | |"
        for op in part:
            yield f"| `{op.name}` | {_where(op)} |"


def _where(op: Op) -> str:
    if op.kernels:
        return f"here: {', '.join(device for device, _ in op.kernels)}"
    return f"TPU only: {op.tpu_only}"


def optimizers_table() -> Iterator[str]:
    """Every optimizer that a configuration may name."""
    yield "| field, ops | class | slots | reads | update |"
    yield "|---|---|---|---|---|"
    classes = _classes()
    for traits in native.embedding_optimizers():
        name = f"`{traits['field']}`"
        if traits["op_name"]:
            name += f", {traits['op_name']}"
        update = "load and retrieve only"
        if traits["formula"]:
            formula = traits["formula"].replace("|", r"\|")
            update = f"`{formula}` ({traits['source']})"
        slots = _bounded(traits["slots"], traits["slot_bounds"])
        if traits["row_wise"]:
            slots += "; one value a row"
        hyper = _bounded(traits["hyper"], traits["hyper_bounds"])
        cls = classes.get(traits["field"], "none")
        yield f"| {name} | {cls} | {slots} | {hyper} | {update} |"


def _classes() -> dict[str, str]:
    """By field: those of TensorFlow, and those of `opwright.tpu`."""
    found = {}
    for name in ("SGD", "Adagrad", "AdagradMomentum", "FTRL", "Adam"):
        parameters = OptimizationParameters()
        cls = getattr(tf.tpu.experimental.embedding, name)
        cls()._set_optimization_parameters(parameters)
        found[optimizers.optimizer_traits(parameters)["field"]] = f"`{name}`"
    for name in optimizers.__all__:
        found[getattr(optimizers, name).FIELD] = f"`tpu.{name}`"
    return found


def _bounded(names: list[str], bounds: list[str]) -> str:
    pairs = zip(names, bounds, strict=True)
    return ", ".join(f"{n} ({b})" if b else n for n, b in pairs) or "none"


def renewed(page: str) -> str:
    """`page` with its tables made anew."""
    for name, table in (("ops", ops_table), ("optimizers", optimizers_table)):
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
        before, found, rest = page.partition(begin)
        _, found_end, after = rest.partition(end)
        if not (found and found_end):
            raise SystemExit(f"{PAGE.name} lacks the marks of the table of {name}")
        rows = "\n".join(table())
        page = f"{before}{begin}\n{rows}\n\n{end}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text("utf-8")), "utf-8")
