"""What the installed TensorFlow says of an op, and what is known of its callers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from opwright_codegen.model import Op

#: How much of a function an op is, for its page to name the function.
_TELLING = 0.5


@dataclass(frozen=True)
class Facts:
    """`kernels`: by device the dtypes, human-readable, and whose they are."""

    kernels: tuple[tuple[str, str, str], ...]
    #: What the example compiles for: a target, and why not.
    compiles: tuple[tuple[str, str], ...]
    gradient: str
    tf_names: tuple[str, ...]
    #: The field's other words for it.
    synonyms: tuple[str, ...]


def of(op: Op) -> Facts:
    from opwright_runtime import kernels, runs_on
    from opwright_runtime.search import synonyms, tf_names
    from opwright_runtime.search.words import parts_of

    _load()
    rows = kernels.kernels(op.name)
    found = []
    for device, words in kernels.served(rows):
        of_device = [row for row in rows if row.device == device]
        providers = " and ".join(dict.fromkeys(row.provider for row in of_device))
        words = words.removesuffix("no such device here").rstrip(";, ")
        found.append((device, words or "any dtype", providers))
    callers = tf_names.callers().get(op.name, {})
    names = tuple(name for name, share in callers.items() if share >= _TELLING)
    tried = runs_on.runs_on(op.name).reasons.items()
    compiles = tuple((target, why or "compiles") for target, why in tried)
    own = synonyms.of_name("".join(parts_of(op.name)))
    others = tuple(dict.fromkeys([*own, *synonyms.of_op(op.name)]))
    return Facts(tuple(found), compiles, _gradient(op.name), names, others)


@cache
def _load() -> None:
    """Has the native kernels registered, where there are some."""
    import opwright

    assert opwright.op_names()


def _gradient(name: str) -> str:
    from tensorflow.python.framework import ops

    try:
        function = ops._gradient_registry.lookup(name)
    except LookupError:
        return "none"
    return "registered" if function is not None else "declared not differentiable"
