"""Calls of the ops with which TPUEmbeddingV2 reads and updates variables in place."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from .calls import Call, Literal, Made, Scenario, Value
from .damage import Draw, damage
from .draws_sparse_core import Chain, floats, ints, scalar, slot

WIDTH = 4
# TensorFlow frees a variable of this name with the last tensor that has its handle.
ANONYMOUS = b"cd2c89b7-88b7-44c8-ad83-06c2a9158347"
#: Ops that make the variables of a scenario. A function cannot return their handles.
SET_UP = ("VarHandleOp", "AssignVariableOp", "AnonymousHashTable", "Pack")
# Slots, and the six numbers of each: TPUEmbeddingV2 calls the update op with these.
OPTIMIZERS: dict[str, tuple[list[str], list[float]]] = {
    "stochastic_gradient_descent": ([], [0.0] * 6),
    "adagrad": (["accumulator"], [0.0] * 6),
    "adagrad_momentum": (["accumulator", "momenta"], [0.9, 1.0, 2.0, 1.0, 0.1, 0.0]),
    "adam": (["momenta", "velocity"], [0.9, 0.9, 0.1, 0.0, 1.0, 0.0]),
    "ftrl": (["accumulator", "linear"], [0.0, 0.0, -0.5, 0.0, 0.0, 0.0]),
}
LISTS = (
    "row_pointers",
    "sorted_sample_ids",
    "sorted_token_ids",
    "sorted_gains",
    "num_minibatches_per_physical_sparse_core",
)


@dataclass
class System:
    """The sizes of a chip's batch and of the tables of all chips."""

    devices: int
    cores: int
    samples: int = 16
    rows: int = 64

    @property
    def shards(self) -> int:
        return self.devices * self.cores


class Variables(Chain):
    """Calls whose variables are made by calls before them."""

    def variable(self, value: Literal) -> Made:
        """The handle of a new variable, which is not always assigned."""
        attrs = {
            "dtype": value.dtype,
            "shape": list(value.shape),
            "shared_name": ANONYMOUS,
        }
        handle = self.handle("VarHandleOp", {}, attrs)
        if not self.rng.chance(0.01):
            inputs: dict[str, Any] = {"resource": handle, "value": value}
            self.calls.append(Call("AssignVariableOp", inputs, {}))
        return handle

    def handle(self, op: str, inputs: dict[str, Any], attrs: dict[str, Any]) -> Made:
        self.calls.append(Call(op, inputs, attrs))
        return Made(len(self.calls) - 1, 0)

    def shards(self, system: System, name: str = "") -> list[Value]:
        """A variable for each device's rows of a table or slot."""
        shape = [system.rows // system.devices, WIDTH]
        return [
            self.variable(slot(self.rng, name, *shape)) for _ in range(system.devices)
        ]

    def worse(self, good: Call, count: int) -> None:
        """Bad calls, and the good one after them."""
        for _ in range(count):
            self.calls.append(damage(self.rng, self.other(copy.deepcopy(good))))
        self.calls.append(good)

    def other(self, call: Call) -> Call:
        """Sometimes, one of the handles is another one."""
        name = next((one for one in ("tables", "variables") if one in call.inputs), "")
        if not name or not self.rng.chance(0.3):
            return call
        handles = call.inputs[name]
        assert isinstance(handles, list)
        at = self.rng.int(0, len(handles) - 1)
        handles[at] = self.wrong(handles)
        call.damage.append(f"{name}[{at}]")
        return call

    def wrong(self, handles: list[Value]) -> Value:
        """Another variable, or something else than the handle of a variable."""
        rng = self.rng
        kind = rng.pick(
            "shape", "shape", "dtype", "nan", "same", "table", "two", "none"
        )
        if kind == "shape":
            shapes = [16, WIDTH], [64, WIDTH + 1], [7, WIDTH], [0, WIDTH], [64, 0], [64]
            return self.variable(floats(rng, *rng.pick(*shapes, [])))
        if kind == "dtype":
            return self.variable(Literal("float64", [64, WIDTH], fill=1.0))
        if kind == "nan":
            shape = [rng.pick(32, 64), WIDTH]
            return self.variable(Literal("float32", shape, fill=float("nan")))
        if kind == "table":
            attrs = {"key_dtype": "int64", "value_dtype": "float32"}
            return self.handle("AnonymousHashTable", {}, attrs)
        if kind == "two":
            return self.handle("Pack", {"values": [handles[0]] * 2}, {})
        return rng.pick(*handles) if kind == "same" else ints(1)


def csr_of_batch(chain: Variables, system: System) -> dict[str, Value]:
    """A device's batch in the format of SparseCores, checked as TPUEmbeddingV2 does."""
    rng = chain.rng
    sizes = [rng.int(0, 3) for _ in range(system.samples)]
    splits = [sum(sizes[:i]) for i in range(system.samples + 1)]
    ids = [rng.int(0, system.rows - 1) for _ in range(splits[-1])]
    kind = rng.pick("int32", "int64")
    given: dict[str, Any] = {"ids": Literal(kind, [len(ids)], list(ids))}
    names = {"table_rows": system.rows, "feature": b"f", "table": b"t"}
    chain.worse(Call("OpwrightSparseCoreIds", given, names), 1)
    feature: dict[str, Any] = {
        "indices_or_row_splits": ints(*splits),
        "values": Made(len(chain.calls) - 1, 0),
        "weights": scalar(1.0),
    }
    attrs: dict[str, Any] = {
        "sample_count": system.samples,
        "combiner": rng.pick(b"sum", b"mean", b"sqrtn"),
        "num_sc_per_chip": system.cores,
        "row_offset": 0,
        "col_offset": 0,
        "col_shift": 0,
        "num_sc_shards": system.shards,
        "stacked_table_sample_count": system.samples,
    }
    lists = chain.add("ConvertToListOfSparseCoreCooTensors", feature, attrs, bad=0)
    triples = ("row_ids_list", "col_ids_list", "gains_list")
    sorted_by = [
        chain.add(
            "SortListOfSparseCoreCooTensors",
            {
                name: [Made(lists, k * system.cores + i)]
                for k, name in enumerate(triples)
            },
            {
                "sample_count_list": [system.samples // system.cores],
                "col_offset_list": [0],
                "num_replica": system.devices,
                "table_vocab_size": system.rows,
                "feature_width": WIDTH,
                "num_sc_per_chip": system.cores,
                "max_ids_per_sparse_core": 500,
                "max_unique_ids_per_sparse_core": 500,
                "table_name": b"t",
            },
            bad=0,
        )
        for i in range(system.cores)
    ]
    dropping = rng.chance(0.3)
    spaces = rng.pick(1, 2, 4) if dropping else 64
    limits = {
        "samples": system.samples,
        "max_ids": 500,
        "max_unique_ids": 500,
        "max_ids_per_chip_per_sample": spaces,
        "allow_id_dropping": dropping,
        "stack": b"t",
        "where": b"the table t",
    }
    chain.worse(
        Call(
            "OpwrightSparseCoreLimits",
            {
                "sorted_col_ids_list": [Made(one, 1) for one in sorted_by],
                "id_counts_list": [Made(one, 3) for one in sorted_by],
            },
            limits,
        ),
        2,
    )
    checked = len(chain.calls) - 1
    ordered: dict[str, Any] = {
        f"sorted_{name}_list": [Made(one, k) for one in sorted_by]
        for k, name in enumerate(("row_ids", "col_ids", "gains"))
    }
    ordered["id_counts_list"] = [Made(checked, i) for i in range(system.cores)]
    ordered["splits"] = Literal("int64", [], [0])
    made = chain.add(
        "ConvertToSparseCoreCsrWrappedCooTensor",
        ordered,
        {
            "sample_count_per_sc": system.samples // system.cores,
            "num_replica": system.devices,
            "max_minibatches_per_sc": 1,
            "max_ids_per_chip_per_sample": spaces,
            "table_vocab_size": system.rows,
            "feature_width": WIDTH,
            "num_sc_per_chip": system.cores,
            "table_name": b"t",
            "allow_id_dropping": dropping,
        },
        bad=0,
    )
    return dict(zip(LISTS, [Made(made, i) for i in (0, 1, 2, 3, 6)], strict=True))


def lookup(
    chain: Variables, system: System, csr: dict[str, Value], tables: list[Value]
) -> None:
    inputs: dict[str, Any] = {**csr, "tables": list(tables)}
    attrs = {
        "input_size": system.samples,
        "quantization_config_low": -1.0,
        "quantization_config_high": 1.0,
        "quantization_config_num_buckets": chain.rng.pick(0, 5),
        "max_ids_per_sparse_core": 500,
        "max_unique_ids_per_sparse_core": 500,
        "num_sparsecores_per_device": system.cores,
    }
    chain.worse(Call("OpwrightSparseCoreLookup", inputs, attrs), 3)


def draw(rng: Draw) -> Scenario:
    """Lookups and updates of one table or two, on one device or two."""
    chain = Variables(rng)
    system = System(rng.pick(1, 2), rng.pick(1, 2, 4))
    names = [rng.pick(*OPTIMIZERS) for _ in range(rng.pick(1, 2))]
    csrs = [[csr_of_batch(chain, system) for _ in range(system.devices)] for _ in names]
    state = [
        [chain.shards(system, part) for part in ("", *OPTIMIZERS[name][0])]
        for name in names
    ]
    annotated: dict[str, Any] = {"tensors": list(csrs[0][0].values())}
    chain.worse(Call("TPUAnnotateTensorsWithDynamicShape", annotated, {}), 1)
    lookup(chain, system, rng.pick(*csrs[0]), state[0][0])
    inputs: dict[str, Any] = {
        name: [csr[name] for table in csrs for csr in table] for name in LISTS
    }
    inputs["activation_gradients"] = [
        floats(rng, system.samples, WIDTH) for table in csrs for _ in table
    ]
    inputs["learning_rates"] = [scalar(rng.pick(0.1, 0.5)) for _ in names]
    inputs["variables"] = [one for table in state for part in table for one in part]
    attrs = {
        "table_names": [b"t%d" % i for i, _ in enumerate(names)],
        "optimizers": [name.encode() for name in names],
        "hyperparameters": [x for name in names for x in OPTIMIZERS[name][1]],
        "max_ids": [500] * len(names),
        "max_unique_ids": [500] * len(names),
        "num_sparsecores_per_device": system.cores,
    }
    chain.worse(Call("OpwrightSparseCoreUpdate", inputs, attrs), 6)
    lookup(chain, system, rng.pick(*csrs[0]), state[0][0])
    return Scenario("variables", chain.calls)
