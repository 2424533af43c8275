"""software_strategy(cores=...): replicas on logical CPUs, over one engine.

The programs are in tests/support/embedding_on_cores.py; each runs in a process of its
own, whose CPU is divided before the first op. Programs with libraries run on cores in
test_libraries.py.
"""

from __future__ import annotations

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
