"""Embedding tables over several hosts: what a step sends, and how long it takes.

It trains tables with 1, 2 and 4 processes of this machine. It compares them with
torchrec, TensorFlow's parameter servers, and torch with gloo, whose users write the
exchange of rows themselves. It compares the bytes that are sent with the formula of
docs/explanation/scale.md, and shows how much of an exchange overlaps the dense part of
a step. It prints the formula's result for more hosts, with the given figures of a link.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from results import Recorder, add_option

from opwright import tpu

tpu_embedding = tf.tpu.experimental.embedding

WARM, STEPS = 3, 20
HOSTS = (1, 2, 4)


@dataclass(frozen=True)
class Workload:
    """Tables that are alike, and a host's part of a batch.

    Ids are uniform: no others give more different ones, and so more bytes.
    """

    tables: int = 4
    rows: int = 100_000
    width: int = 64
    samples: int = 256
    ids: int = 20

    def different(self) -> float:
        """Different ids of a table that are expected in the batch of a host."""
        looked_up = self.samples * self.ids
        return float(-self.rows * np.expm1(looked_up * np.log1p(-1 / self.rows)))

    def bytes_sent(self, hosts: int) -> float:
        """Of a host in a step: the less of rows and sums."""
        others = hosts - 1
        values = 4 + 8 * self.width
        unpooled = self.different() * others / hosts * values
        owners = others * (1 - (1 - 1 / hosts) ** self.ids)  # Of the ids of a sample.
        ids = self.samples * self.ids * others / hosts
        pooled = self.samples * owners * values + 4 * ids
        overhead = others * (32 + 28 * self.tables)
        return self.tables * min(unpooled, pooled) + overhead

    def batches(self, host: int) -> list[NDArray[np.int64]]:
        """Of all steps: [tables, samples, ids]."""
        rng = np.random.default_rng(host)
        shape = [WARM + STEPS, self.tables, self.samples, self.ids]
        return list(rng.integers(0, self.rows, shape))


@dataclass(frozen=True)
class Machine:
    """Measured figures of a host and of its link."""

    gigabytes_a_second: float
    milliseconds_a_round: float
    microseconds_a_message: float
    milliseconds_alone: float

    def step(self, workload: Workload, hosts: int) -> float:
        """Milliseconds: four rounds, each as many messages as there are other hosts."""
        if hosts == 1:
            return self.milliseconds_alone
        messages = 4 * (hosts - 1)
        return (
            self.milliseconds_alone
            + workload.bytes_sent(hosts) / self.gigabytes_a_second / 1e6
            + 4 * self.milliseconds_a_round
            + messages * self.microseconds_a_message / 1e3
        )


Found = dict[str, float]


def timed(step: Callable[[int], object]) -> Found:
    """Runs step(0), step(1) ...; milliseconds and CPU milliseconds of a step."""
    for i in range(WARM):
        step(i)
    started, cpu = time.perf_counter(), time.process_time()
    for i in range(WARM, WARM + STEPS):
        step(i)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    return {"milliseconds": 1000 * seconds / STEPS, "cpu": 1000 * cpu / STEPS}


# ---- Programs: what each host runs, with all addresses.


def resolver_of(host: int, addresses: list[str]) -> Any:
    if len(addresses) == 1:
        return None
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": addresses}),
        task_type="worker",
        task_id=host,
        rpc_layer="grpc",
    )


def tables_of(workload: Workload, host: int, addresses: list[str]) -> Any:
    """A strategy, tables, and batches as they are enqueued."""
    strategy = tpu.software_strategy(resolver_of(host, addresses))
    features = {
        str(t): tpu_embedding.FeatureConfig(
            tpu_embedding.TableConfig(
                workload.rows, workload.width, combiner="sum", name=f"t{t}"
            ),
            output_shape=[workload.samples],
        )
        for t in range(workload.tables)
    }
    with strategy.scope():
        tables = tpu_embedding.TPUEmbedding(features, tpu_embedding.Adagrad(0.1))
    tables.build()
    batches = [
        {
            name: tf.RaggedTensor.from_tensor(tf.constant(ids))
            for name, ids in zip(features, batch, strict=True)
        }
        for batch in workload.batches(host)
    ]
    return strategy, tables, batches


def opwright(host: int, addresses: list[str], workload: Workload) -> Found:
    """Steps of the tables alone, without a dense part."""
    strategy, tables, batches = tables_of(workload, host, addresses)

    @tf.function
    def step(ids: Any) -> None:
        tables.enqueue(ids, training=True)
        strategy.run(lambda: tables.apply_gradients(tables.dequeue()))

    sent: list[dict[str, int]] = []

    def one(i: int) -> None:
        if i == WARM:
            sent.append(tpu.embedding_bytes_sent())
        step(batches[i])

    found = timed(one)
    after = tpu.embedding_bytes_sent()
    each = {kind: (after[kind] - sent[0][kind]) / STEPS for kind in after}
    return found | {"messages": each.pop("messages"), "bytes": sum(each.values())}


def torch_with_gloo(host: int, addresses: list[str], workload: Workload) -> Found:
    """Rows sharded by id; each is requested once, all tables' in one all-to-all."""
    import torch
    import torch.distributed as dist

    hosts, width = len(addresses), workload.width
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // hosts))
    if hosts > 1:
        dist.init_process_group(
            "gloo", init_method=f"tcp://{addresses[0]}", rank=host, world_size=hosts
        )
    # The tables one after the other; row r is row r // hosts of host r % hosts.
    own = -(-workload.tables * workload.rows // hosts)
    weights = torch.rand(own, width) / 10
    squares = torch.full((own, width), 0.1)
    first = torch.arange(workload.tables)[:, None, None] * workload.rows
    batches = [
        (torch.from_numpy(one) + first).flatten() for one in workload.batches(host)
    ]
    offsets = torch.arange(0, batches[0].numel(), workload.ids)

    def swap(values: Any, out: list[int], into: list[int]) -> Any:
        if hosts == 1:
            return values
        got = values.new_empty((sum(into), *values.shape[1:]))
        dist.all_to_all_single(got, values, into, out)
        return got

    def step(i: int) -> None:
        ids, places = torch.unique(batches[i], return_inverse=True)
        order = torch.argsort(ids % hosts, stable=True)
        counts = torch.bincount(ids % hosts, minlength=hosts)
        asked = swap(counts, [1] * hosts, [1] * hosts)
        out, into = counts.tolist(), asked.tolist()
        locals_ = swap(torch.div(ids[order], hosts, rounding_mode="floor"), out, into)
        rows = swap(weights[locals_], into, out)
        of_id = torch.empty_like(order)
        of_id[order] = torch.arange(order.numel())
        rows.requires_grad_()
        bags = torch.nn.functional.embedding_bag(
            of_id[places], rows, offsets, mode="sum", sparse=False
        )
        bags.backward(bags.detach())
        gradients = swap(rows.grad, out, into)
        # Several hosts may have requested a row.
        mine, of_mine = torch.unique(locals_, return_inverse=True)
        sums = torch.zeros(mine.numel(), width).index_add_(0, of_mine, gradients)
        square = squares[mine] + sums * sums
        squares[mine] = square
        weights[mine] -= 0.1 * sums / square.sqrt()

    found = timed(step)
    if hosts > 1:
        dist.barrier()
    return found


def torchrec_with_gloo(host: int, addresses: list[str], workload: Workload) -> Found:
    """Its sharded bags, with full tables on each host: on CPUs it has no other way."""
    import torch
    import torch.distributed as dist
    import torchrec
    from torch.distributed.optim import _apply_optimizer_in_backward
    from torchrec.distributed import planner
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.model_parallel import DistributedModelParallel

    hosts = len(addresses)
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // hosts))
    dist.init_process_group(
        "gloo", init_method=f"tcp://{addresses[0]}", rank=host, world_size=hosts
    )
    names = [f"t{t}" for t in range(workload.tables)]
    bags = torchrec.EmbeddingBagCollection(
        tables=[
            torchrec.EmbeddingBagConfig(
                name=name,
                embedding_dim=workload.width,
                num_embeddings=workload.rows,
                feature_names=[name],
            )
            for name in names
        ],
        device=torch.device("meta"),
    )
    _apply_optimizer_in_backward(torch.optim.Adagrad, bags.parameters(), {"lr": 0.1})
    sharders: list[Any] = [EmbeddingBagCollectionSharder()]
    by_table = planner.ParameterConstraints(sharding_types=["table_wise"])
    topology = planner.Topology(hosts, "cpu", local_world_size=hosts)
    plan = planner.EmbeddingShardingPlanner(
        topology=topology,
        batch_size=workload.samples,
        constraints=dict.fromkeys(names, by_table),
    ).collective_plan(bags, sharders, dist.group.WORLD)
    model = DistributedModelParallel(
        bags, device=torch.device("cpu"), plan=plan, sharders=sharders
    )
    lengths = torch.full([workload.tables * workload.samples], workload.ids)
    batches = [
        torchrec.KeyedJaggedTensor(
            names, torch.from_numpy(ids).flatten(), lengths=lengths
        )
        for ids in workload.batches(host)
    ]

    def step(i: int) -> None:
        found = model(batches[i]).values()
        found.backward(found.detach())

    found = timed(step)
    dist.barrier()
    return found


def parameter_servers(task: int, addresses: list[str], workload: Workload) -> Found:
    """ParameterServerStrategy: a chief, one server with all rows, and the workers.

    A worker requests each row once and sends one gradient of it. Workers do not wait
    for each other's steps.
    """
    jobs = [("chief", 0), ("ps", 0)]
    jobs += [("worker", i) for i in range(len(addresses) - len(jobs))]
    cluster = tf.train.ClusterSpec(
        {"chief": addresses[:1], "ps": addresses[1:2], "worker": addresses[2:]}
    )
    job, index = jobs[task]
    if job != "chief":
        tf.distribute.Server(cluster, job, index, protocol="grpc").join()
    workers = len(jobs) - 2
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster, task_type="chief", task_id=0, rpc_layer="grpc"
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    shape = [workload.rows, workload.width]
    with strategy.scope():
        weights = [
            tf.Variable(tf.random.uniform(shape) / 10) for _ in range(workload.tables)
        ]
        squares = [tf.Variable(tf.fill(shape, 0.1)) for _ in weights]

    def data(context: Any) -> tf.data.Dataset:
        ids = np.stack(workload.batches(context.input_pipeline_id))
        return tf.data.Dataset.from_tensor_slices(ids).repeat()

    batches = iter(
        coordinator.create_per_worker_dataset(
            lambda: strategy.distribute_datasets_from_function(data)
        )
    )

    def train(ids: Any) -> None:
        for table, (weight, square) in enumerate(zip(weights, squares, strict=True)):
            unique, places = tf.unique(tf.reshape(ids[table], [-1]))
            rows = tf.nn.embedding_lookup(weight, unique)
            each = tf.gather(rows, tf.reshape(places, [-1, workload.ids]))
            bags = tf.reduce_sum(each, axis=1)
            gradients = tf.math.unsorted_segment_sum(
                tf.repeat(bags, workload.ids, axis=0), places, tf.size(unique)
            )
            with tf.device(weight.device):
                tf.raw_ops.ResourceSparseApplyAdagradV2(
                    var=weight.handle,
                    accum=square.handle,
                    lr=0.1,
                    epsilon=0.0,
                    grad=gradients,
                    indices=unique,
                )

    @tf.function
    def step(iterator: Any) -> None:
        strategy.run(train, args=(next(iterator),))

    def steps(count: int) -> float:
        started = time.perf_counter()
        for _ in range(count * workers):
            coordinator.schedule(step, args=(batches,))
        coordinator.join()
        return 1000 * (time.perf_counter() - started) / count

    steps(WARM)
    return {"milliseconds": steps(STEPS)}


def beside_a_dense_part(ahead: bool, milliseconds: float) -> Any:
    """A program whose dense part takes a while, as an accelerator's would.

    Args:
        ahead: it enqueues the next batch before that, and not after the step.
    """

    def program(host: int, addresses: list[str], workload: Workload) -> Found:
        strategy, tables, batches = tables_of(workload, host, addresses)
        a_batch = (len(addresses) - 1) * (16 + 24 * workload.tables)
        early = 0  # Steps at whose end the next batch was requested.

        def dense(step: int) -> np.float32:
            nonlocal early
            time.sleep(milliseconds / 1000)
            asked = tpu.embedding_bytes_sent()["counts"] // a_batch
            early += int(step >= WARM and asked >= step + 2)
            return np.float32(1)

        @tf.function
        def step(ids: Any, number: Any) -> None:
            def run() -> None:
                found = tables.dequeue()
                with tf.control_dependencies(tf.nest.flatten(found)):
                    one = tf.numpy_function(dense, [number], tf.float32)
                one = tf.reshape(one, [])
                tables.apply_gradients({key: found[key] * one for key in found})

            tables.enqueue(ids, training=True)
            strategy.run(run)

        if ahead:
            tf.function(tables.enqueue)(batches[-1], training=True)
        found = timed(lambda i: step(batches[i], tf.constant(i)))
        return found | {"early": early}

    return program


# And how many processes there are before those of the hosts: then the first one says
# when it is over.
PROGRAMS: dict[str, tuple[Any, int]] = {
    "opwright": (opwright, 0),
    "torch, gloo": (torch_with_gloo, 0),
    "ParameterServerStrategy": (parameter_servers, 2),
}
if importlib.util.find_spec("torchrec"):
    PROGRAMS["torchrec, gloo"] = (torchrec_with_gloo, 0)


def run(program: Any, hosts: int, workload: Workload, more: int = 0) -> list[Found]:
    """What each process of a program found; no op runs before they are forked."""
    sockets = [socket.socket() for _ in range(hosts + more)]
    for one in sockets:
        one.bind(("localhost", 0))
    addresses = [f"localhost:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for host in range(len(addresses)):
            if pid := os.fork():
                children.append(pid)
                continue
            code = 1
            try:
                found = program(host, addresses, workload)
                Path(folder, str(host)).write_text(json.dumps(found))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        ended = children[:1] if more else children
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ended]
        for pid in set(children) - set(ended):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        if any(codes):
            raise SystemExit(f"{program.__name__}, {hosts} hosts: ended with {codes}")
        return [json.loads(path.read_text()) for path in Path(folder).iterdir()]


def mean(found: list[Found]) -> Found:
    return {key: float(np.mean([one[key] for one in found])) for key in found[0]}


def measure(
    workload: Workload, rounds: int, recorder: Recorder
) -> dict[int, dict[str, Found]]:
    """By number of hosts and program: of each the round with the shortest step."""
    best: dict[int, dict[str, Found]] = {}
    for hosts in HOSTS:
        seconds: dict[str, list[float]] = {name: [] for name in PROGRAMS}
        for _ in range(rounds):
            for name, (program, more) in PROGRAMS.items():
                found = mean(run(program, hosts, workload, more))
                seconds[name].append(found["milliseconds"] / 1e3)
                before = best.setdefault(hosts, {}).get(name)
                if before is None or found["milliseconds"] < before["milliseconds"]:
                    best[hosts][name] = found
        recorder.add(str(hosts), "step", seconds)
    return best


def print_measured(best: dict[int, dict[str, Found]], workload: Workload) -> list[str]:
    """Two tables; and what does not hold."""
    problems = []
    print("| hosts | ms a step | CPU ms a host | messages | bytes sent | formula |")
    print("|---|---|---|---|---|---|")
    for hosts, programs in best.items():
        ours, formula = programs["opwright"], workload.bytes_sent(hosts)
        print(
            f"| {hosts} | {ours['milliseconds']:.1f} | {ours['cpu']:.1f} "
            f"| {ours['messages']:.0f} | {ours['bytes']:,.0f} | {formula:,.0f} |"
        )
        if ours["bytes"] > 1.2 * formula:
            problems.append(f"{hosts} hosts send {ours['bytes']:,.0f} bytes")
    print(f"\n| examples a second, by hosts | {' | '.join(map(str, best))} |")
    print("|---|" + "---|" * len(best))
    for name in PROGRAMS:
        speeds = {
            hosts: 1000 * hosts * workload.samples / programs[name]["milliseconds"]
            for hosts, programs in best.items()
        }
        print(f"| {name} | {' | '.join(f'{one:,.0f}' for one in speeds.values())} |")
        for hosts, speed in speeds.items():
            ours = best[hosts]["opwright"]["milliseconds"]
            if name != "opwright" and speed >= 1000 * hosts * workload.samples / ours:
                problems.append(f"{name} is faster with {hosts} hosts")
    return problems


def print_overlap(workload: Workload, milliseconds: float) -> list[str]:
    print(f"\n| 2 hosts, a dense part of {milliseconds:g} ms | ms a step | early |")
    print("|---|---|---|")
    problems = []
    for name, ahead in (("batch by batch", False), ("the next one enqueued", True)):
        found = mean(run(beside_a_dense_part(ahead, milliseconds), 2, workload))
        early = f"{found['early']:g} of {STEPS}"
        print(f"| {name} | {found['milliseconds']:.1f} | {early} |", flush=True)
        if ahead and found["early"] < STEPS:
            problems.append(f"the next batch was requested in time in {early} steps")
    return problems


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--link", type=float, default=10.0, help="gigabytes a second")
    parser.add_argument("--round", type=float, default=0.2, help="milliseconds a round")
    parser.add_argument("--message", type=float, default=30.0, help="microseconds each")
    parser.add_argument("--rounds", type=int, default=3, help="of all programs")
    parser.add_argument("--dense", type=float, default=20.0, help="milliseconds")
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 where a target is missed"
    )
    add_option(parser)
    options = parser.parse_args(arguments)
    recorder = Recorder("embedding_hosts", options.record)
    workload = Workload()
    best = measure(workload, options.rounds, recorder)
    recorder.save()
    problems = print_measured(best, workload)
    problems += print_overlap(workload, options.dense)
    alone = best[1]["opwright"]["milliseconds"]
    machine = Machine(options.link, options.round, options.message, alone)
    print("\n| hosts | bytes sent | messages | ms a step |\n|---|---|---|---|")
    for hosts in (1, 2, 4, 16, 64, 256, 1024):
        print(
            f"| {hosts} | {workload.bytes_sent(hosts):,.0f} | {4 * (hosts - 1)} "
            f"| {machine.step(workload, hosts):.1f} |"
        )
    if options.check and problems:
        raise SystemExit("; ".join(problems))


if __name__ == "__main__":
    main(sys.argv[1:])
