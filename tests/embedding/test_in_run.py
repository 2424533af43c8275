"""What replicas of several cores do with their TPUEmbedding within `strategy.run`."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from support.processes import run_program


@pytest.mark.rotating
@pytest.mark.parametrize("library", ["plain", "tensorflow-recommenders", "keras-rs"])
def test_enqueue_in_every_place_finds_what_numpy_does(library: str) -> None:
    if library == "keras-rs" and sys.version_info < (3, 11):
        pytest.skip("keras-rs is for Python 3.11 and later")
    legacy = "1" if library == "tensorflow-recommenders" else "0"
    done = run_program(
        "embedding.support.in_run", library, timeout=600, TF_USE_LEGACY_KERAS=legacy
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "done" in done.stdout


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    done = run_program("embedding.support.in_replicas", timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    cases: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return cases


def after(steps: float, seen: float | None = None) -> list[list[float]]:
    """What rows 1 and 2 were before the last step, and rows 0 to 3 after it."""
    taken = steps - 1 if seen is None else seen
    return [[2 - taken, 4 - taken], [0, 2 - steps, 4 - steps, 6]]


IN_CONTROL_FLOW = "called inside control flow or a tf.function inside `strategy.run`"
NOT_DIRECT = "does not have the `_tpu_input_identity` attr"
FOR_ONE_CORE = "is for one core, and the strategy has 2"


@pytest.mark.parametrize(
    ("case", "strict", "lenient"),
    [
        ("a_step", after(1), after(1)),
        ("call_for_each_replica", after(1), after(1)),
        ("session", after(1), after(1)),
        ("branch", IN_CONTROL_FLOW, after(1)),
        ("loop", IN_CONTROL_FLOW, after(3)),
        ("function", IN_CONTROL_FLOW, after(1)),
        ("function_that_run_calls", IN_CONTROL_FLOW, after(1)),
        ("loop_around_run", after(3), after(3)),
        ("loop_that_dequeues", after(3), after(3)),
        ("function_with_three_steps", after(3), after(3)),
        ("checkpoint_in_run", after(2), after(2)),
        ("build_in_run", after(1), after(1)),
        ("dynamic_rate", after(0.5, 0), after(0.5, 0)),
        ("pipelined", after(3, 1), after(3, 1)),
        ("enqueue_in_merge_call", after(1), after(1)),
        ("computed_ids_in_merge_call", NOT_DIRECT, after(1)),
        ("apply_gradients_in_merge_call", FOR_ONE_CORE, FOR_ONE_CORE),
        ("dequeue_outside_of_run", FOR_ONE_CORE, FOR_ONE_CORE),
        ("ids_of_all_replicas", "features must be", "features must be"),
        ("weights_of_all_replicas", "weights must be", "weights must be"),
        ("device_in_run", "device must be left out", "device must be left out"),
    ],
)
@pytest.mark.parametrize("kind", ["strict", "lenient"])
@pytest.mark.rotating(together="replicas")
def test_replica_step_gives_expected_result_or_error(
    found: dict[str, Any], case: str, kind: str, strict: Any, lenient: Any
) -> None:
    expected = strict if kind == "strict" else lenient
    came = found[f"{case} {kind}"]
    if isinstance(expected, str):
        assert expected in came
    else:
        assert came == expected
