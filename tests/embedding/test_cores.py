"""software_strategy(cores=...): replicas on logical CPUs, over one engine.

The programs are in tests/embedding/support/on_cores.py; each runs in a process of its
own, whose CPU is divided before the first op. Programs with libraries run on cores in
test_libraries.py.
"""

from __future__ import annotations

import json

import pytest
import tensorflow as tf

from opwright import tpu
from support.processes import run_code, run_program


@pytest.mark.rotating
@pytest.mark.parametrize(
    "case",
    [
        "same_tables of 2",
        "same_tables of 4",
        pytest.param("same_tables of 8", marks=pytest.mark.equivalence),
        "same_tables of 4, pipelined",
        "checkpoints",
        "values",
        "ways_to_enqueue",
        "failures",
        "eager_failures",
        "refusals",
        "v0",
        "fit of keras",
        "fit of tf_keras",
    ],
)
def test_software_strategy_program_on_cores_runs(case: str) -> None:
    done = run_program("embedding.support.on_cores", case, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert "done" in done.stdout


@pytest.mark.parametrize("cores", [0, -1, True, 2.0, "4", None])
def test_software_strategy_bad_cores_raises(cores: object) -> None:
    with pytest.raises(ValueError, match="cores must be an int of at least 1, not"):
        tpu.software_strategy(cores=cores)  # type: ignore[arg-type]


def test_software_strategy_cores_with_hosts_raises() -> None:
    spec = tf.train.ClusterSpec({"worker": ["localhost:1", "localhost:2"]})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        spec, task_type="worker", task_id=0
    )
    with pytest.raises(ValueError, match="has one core, not 4; start as many tasks"):
        tpu.software_strategy(resolver, cores=4)


def test_too_late_for_devices() -> None:
    """Ops have run in this process. The error says what to write, and that works."""
    tf.constant(0) + 1
    with pytest.raises(RuntimeError, match="3 cores need as many") as caught:
        tpu.software_strategy(cores=3)
    advice = str(caught.value).split("write at its beginning:\n")[1]
    program = "\n".join(line[4:] for line in advice.splitlines())
    done = run_code(f"""
import tensorflow as tf
{program}
tf.constant(0) + 1
from opwright import tpu
assert tpu.software_strategy(cores=3).num_replicas_in_sync == 3
assert tpu.software_strategy().num_replicas_in_sync == 1
""")
    assert done.returncode == 0, done.stderr


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("before", "changes", "threads", "own"),
    [
        ("", {}, 1, 2),
        ("tf.config.set_logical_device_configuration(cpu, [one, one])", {}, 1, 2),
        ("os.sched_getaffinity = lambda process: set(range(3))", {}, 0, 0),
        ("tf.config.threading.set_intra_op_parallelism_threads(3)", {}, 3, 0),
        ("", {"TF_NUM_INTRAOP_THREADS": "3"}, 0, 0),
        (
            "tf.config.set_logical_device_configuration(cpu, [one, one])\n"
            "tf.constant(0) + 1",
            {},
            0,
            0,
        ),
    ],
    ids=["unset", "devices", "idle processors", "set", "environment", "too late"],
)
def test_threads_of_an_op(
    before: str, changes: dict[str, str], threads: int, own: int
) -> None:
    """Two cores on two processors have one each, unless the program says otherwise."""
    done = run_code(
        f"""
import json, os
from pathlib import Path
import tensorflow as tf
from opwright import tpu
os.sched_getaffinity = lambda process: {{0, 1}}
cpu = tf.config.list_physical_devices("CPU")[0]
one = tf.config.LogicalDeviceConfiguration()
{before}
tpu.software_strategy(cores=2)
tpu.software_strategy(cores=2)
tpu.software_strategy()
names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
own = sum(name.startswith("tf_opwright") for name in names)
print(json.dumps([tf.config.threading.get_intra_op_parallelism_threads(), own]))
""",
        **{"TF_NUM_INTRAOP_THREADS": "", **changes},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [threads, own]


def test_ops_of_the_library_keep_all_threads() -> None:
    """A table is updated by the library's threads, where TensorFlow's ops have one."""
    done = run_code(
        """
import os
from pathlib import Path
import tensorflow as tf
from opwright import tpu
os.sched_getaffinity = lambda process: {0, 1}
embedding = tf.tpu.experimental.embedding
strategy = tpu.software_strategy(cores=2)
with strategy.scope():
    table = embedding.TableConfig(10_000, 64, name="table")
    tables = embedding.TPUEmbedding(
        embedding.FeatureConfig(table, output_shape=[4096]), embedding.Adagrad(0.1)
    )
tables.build()
ids = tf.random.uniform([4096 * 20], maxval=10_000, dtype=tf.int32, seed=1)
bags = tf.RaggedTensor.from_uniform_row_length(ids, 20)
of_cores = strategy.experimental_distribute_values_from_function(lambda context: bags)

@tf.function
def step(bags):
    tables.enqueue(bags)
    strategy.run(lambda: tables.apply_gradients(tables.dequeue()))

def worked():
    of_threads = [path.read_text() for path in Path("/proc/self/task").glob("*/stat")]
    own = [one.split(") ")[1].split() for one in of_threads if "(tf_opwright" in one]
    return [int(one[11]) + int(one[12]) for one in own]

for _ in range(2000):
    step(of_cores)
    if sum(worked()) > 5:
        break
print(worked(), "ticks of the library's threads")
assert sum(worked()) > 5
""",
        TF_NUM_INTRAOP_THREADS="",
    )
    assert done.returncode == 0, done.stderr


def test_sums_in_the_order_of_the_cores() -> None:
    done = run_code("""
import numpy as np
import tensorflow as tf
from opwright import tpu
strategy = tpu.software_strategy(cores=3)
rng = np.random.default_rng(1)
whole = [
    rng.standard_normal([3, 5, 7], np.float32),
    rng.integers(0, 9, [3]),
    rng.standard_normal([3, 0]),
]
SUM, MEAN = tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN

@tf.function
def sums(how, *of_all):
    def replica():
        core = tf.distribute.get_replica_context().replica_id_in_sync_group
        values = [one[core] for one in of_all]
        context = tf.distribute.get_replica_context()
        together = context.all_reduce(how, values)
        apart = [context.all_reduce(how, one) for one in values]
        assert [one.shape for one in together] == [one.shape for one in apart]
        at = tf.constant([1, 3])
        rows = tf.IndexedSlices(together[0][:2], at, tf.constant([5, 7]))
        mixed = context.all_reduce(how, [rows, together[2]])
        return together, apart, tf.convert_to_tensor(mixed[0]), mixed[1]
    return strategy.run(replica)

for how in (SUM, MEAN):
    together, apart, rows, _ = sums(how, *map(tf.constant, whole))
    for one, other, source in zip(together, apart, whole):
        ones, others = map(strategy.experimental_local_results, (one, other))
        assert len(ones) == 3 and ones[0].dtype == others[0].dtype
        for a, b in zip(ones, others):
            np.testing.assert_allclose(a, b, 1e-5, 1e-6)
            assert np.array_equal(a, ones[0])
        if how == SUM:
            assert np.array_equal(ones[0], (source[0] + source[1]) + source[2])
    of_all = strategy.experimental_local_results(together[0])[0][:2]
    scale = 3 if how == SUM else 1
    np.testing.assert_allclose(rows.values[0].numpy()[[1, 3]], scale * of_all, 1e-5)

# One message to the core that sums and one back: twice two, of two values or of twenty.
def messages(count):
    @tf.function
    def step():
        def replica():
            context = tf.distribute.get_replica_context()
            scale = tf.cast(context.replica_id_in_sync_group, tf.float32)
            terms = [i * scale for i in range(count)]
            return tf.add_n(context.all_reduce("SUM", terms))
        return strategy.run(replica)
    types = [op.type for op in step.get_concrete_function().graph.get_operations()]
    return types.count("CompositeTensorVariantFromComponents")

assert messages(2) == messages(20) == 4
""")
    assert done.returncode == 0, done.stderr
