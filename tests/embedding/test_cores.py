"""software_strategy(cores=...): replicas on logical CPUs, over one engine.

The programs are in tests/support/embedding_on_cores.py; each runs in a process of its
own, whose CPU is divided before the first op. Programs with libraries run on cores in
test_libraries.py.
"""

from __future__ import annotations

import json

import pytest
import tensorflow as tf

from opwright import tpu
from support.processes import run_code, run_program


@pytest.mark.parametrize(
    "case",
    [
        "same_tables",
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
def test_on_cores(case: str) -> None:
    done = run_program("embedding_on_cores", case, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert "done" in done.stdout


@pytest.mark.parametrize("cores", [0, -1, True, 2.0, "4", None])
def test_a_number_of_cores(cores: object) -> None:
    with pytest.raises(ValueError, match="cores must be an int of at least 1, not"):
        tpu.software_strategy(cores=cores)  # type: ignore[arg-type]


def test_a_host_has_one_core() -> None:
    spec = tf.train.ClusterSpec({"worker": ["localhost:1", "localhost:2"]})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        spec, task_type="worker", task_id=0
    )
    with pytest.raises(ValueError, match="has one core, not 4; start as many tasks"):
        tpu.software_strategy(resolver, cores=4)


def test_too_late_for_devices() -> None:
    """Ops have run in this process; what to write is told, and is right."""
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
