"""A recommender of two towers, trained with TPUEmbedding on the CPU.

It makes a data set of users who watch films, trains embedding tables and dense towers
with code as for a TPU, draws the loss, and exports a SavedModel which it queries:
how often is the film that a user watches next among ten recommendations?

A training that was interrupted goes on with --resume, from its last whole epoch, on
as many hosts (--hosts) as there are then.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from two_towers import data as datasets
from two_towers.hosts import Hosts

if TYPE_CHECKING:
    from two_towers.model import Recommender, Training

#: Steps of one call, in a loop within the graph.
STEPS_A_CALL = 20


@dataclass(frozen=True)
class Settings:
    """What a training is made with, from its first epoch to its last."""

    users: int
    films: int
    dimension: int
    batch: int
    epochs: int
    seed: int
    row_dtype: str = "float32"


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    console = Console()
    try:
        settings = settle(options)
        if options.host is not None:
            run_host(settings, options.folder, options.host, options.cluster)
        elif options.hosts > 1:
            run_hosts(settings, options.folder, options.hosts, console)
        else:
            run(settings, options.folder, console)
    except RefusedError as error:
        console.print(f"[bold red]failed:[/] {error}", highlight=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("\ninterrupted; --resume goes on from the last whole epoch")
        return 130
    return 0


class RefusedError(Exception):
    """What was requested cannot be done."""


def settle(options: argparse.Namespace) -> Settings:
    """The settings: as given, or of the training that goes on."""
    kept = options.folder / "settings.json"
    if options.resume or options.host is not None:
        if not kept.exists():
            raise RefusedError(f"no training to go on with in {options.folder}")
        return Settings(**json.loads(kept.read_text()))
    if kept.exists():
        raise RefusedError(
            f"a training is in {options.folder} already: go on with it (--resume) or "
            "choose another --folder"
        )
    settings = Settings(
        users=options.users,
        films=options.films,
        dimension=options.dimension,
        batch=options.batch,
        epochs=options.epochs,
        seed=options.seed,
        row_dtype=options.row_dtype,
    )
    if steps_of(settings) < 1:
        raise RefusedError("a batch is more than all that was watched")
    options.folder.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(asdict(settings)))
    return settings


def steps_of(settings: Settings) -> int:
    """Steps of an epoch."""
    steps: int = settings.users * (datasets.WATCHED - 1) // settings.batch
    return steps


def run(settings: Settings, folder: Path, console: Console) -> None:
    """Trains, draws, exports, queries."""
    with console.status("TensorFlow, data and tables"):
        data, training = prepare(settings)
    losses = train(training, settings, folder, console)
    finish(data, training, losses, settings, folder, console)


def prepare(
    settings: Settings, resolver: object = None
) -> tuple[datasets.Data, Training]:
    """The data and what is trained, on the hosts of a cluster if there is one."""
    # Only here: importing TensorFlow takes seconds, which --help can do without.
    import keras
    from two_towers.model import Training

    # Keras draws the towers' first weights from Python's generator.
    keras.utils.set_random_seed(settings.seed)
    data = datasets.make(settings.users, settings.films, settings.seed)
    steps = steps_of(settings) * settings.epochs
    made = Training(
        data,
        settings.dimension,
        settings.batch,
        steps,
        resolver,
        settings.row_dtype,
    )
    return data, made


def run_host(settings: Settings, folder: Path, host: int, cluster: str) -> None:
    """Trains as one of several hosts; tells the launcher, a line of JSON each."""
    import tensorflow as tf

    from opwright import tpu

    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": cluster.split(",")}),
        task_type="worker",
        task_id=host,
        rpc_layer="grpc",
    )
    data, training = prepare(settings, resolver)
    losses = restored(training, folder)
    # All save; the first host's checkpoints are those that training goes on from.
    own = folder if host == 0 else folder / f"host_{host}"
    own.mkdir(exist_ok=True)
    for epoch, done, loss in epochs(training, losses, settings, own):
        sent = tpu.embedding_bytes_sent()
        line = {"epoch": epoch, "done": done, "loss": loss, "sent": sent}
        print(json.dumps(line), flush=True)
    if host == 0:
        everything = [loss for epoch in losses for loss in epoch]
        with (folder / "report.txt").open("w", encoding="utf-8") as file:
            console = Console(file=file, width=80)
            finish(data, training, everything, settings, folder, console)


def run_hosts(settings: Settings, folder: Path, count: int, console: Console) -> None:
    """Starts the hosts, shows how far they are, and then what each has sent."""
    if settings.batch % count:
        raise RefusedError(f"{count} hosts cannot share a batch of {settings.batch}")
    columns = (
        TextColumn("host {task.fields[host]}, epoch {task.fields[epoch]}"),
        BarColumn(None),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}, {task.fields[sent]:.0f} MB sent"),
        TimeRemainingColumn(),
    )
    sent: dict[int, dict[str, int]] = {}
    with Hosts(folder, count) as hosts, Progress(*columns, console=console) as progress:
        total, loss = steps_of(settings) * settings.epochs, float(
            np.log(settings.batch)
        )
        bars = [
            progress.add_task("", total=total, host=host, epoch=0, loss=loss, sent=0.0)
            for host in range(count)
        ]
        for host, said in hosts.said():
            sent[host] = said["sent"]
            megabytes = (
                sum(number for kind, number in sent[host].items() if kind != "messages")
                / 1e6
            )
            progress.update(
                bars[host],
                completed=said["done"],
                epoch=said["epoch"],
                loss=said["loss"],
                sent=megabytes,
            )
        ended = hosts.ended()
    if any(ended.values()):
        for host, code in ended.items():
            if code:
                console.print(
                    f"host {host} ended with {code}: {folder}/host_{host}.log"
                )
        raise RefusedError(
            "training stopped; --resume goes on from the last whole epoch"
        )
    by_host = [sent[host] for host in sorted(sent)]
    table = Table("bytes sent", *(f"by host {host}" for host in sorted(sent)))
    for kind in by_host[0]:
        table.add_row(kind, *(f"{numbers[kind]:,}" for numbers in by_host))
    console.print(table)
    report = (folder / "report.txt").read_text("utf-8")
    console.print(report, end="", highlight=False, markup=False)


def finish(
    data: datasets.Data,
    training: Training,
    losses: Sequence[float],
    settings: Settings,
    folder: Path,
    console: Console,
) -> None:
    """Draws, exports, queries."""
    import tensorflow as tf
    from two_towers.model import Recommender

    draw(losses, steps_of(settings), folder / "loss.png")
    with console.status("export"):
        path = str(tf.train.latest_checkpoint(folder))
        towers = training.towers
        recommender = Recommender(data, settings.dimension, towers, path)
        served = recommender.export(folder / "serving")
    report(data, served, losses, folder, console)


def train(
    training: Training, settings: Settings, folder: Path, console: Console
) -> list[float]:
    """Trains what epochs are left; returns the losses of all, a call each."""
    losses = restored(training, folder)
    if losses:
        console.print(f"goes on after epoch {len(losses)}")
    columns = (
        TextColumn("epoch {task.fields[epoch]}"),
        BarColumn(None),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"),
        TimeRemainingColumn(),
    )
    steps = steps_of(settings)
    last = losses[-1][-1] if losses else float(np.log(settings.batch))
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(
            "",
            True,
            steps * settings.epochs,
            steps * len(losses),
            epoch=len(losses),
            loss=last,
        )
        for epoch, done, loss in epochs(training, losses, settings, folder):
            progress.update(bar, completed=done, epoch=epoch, loss=loss)
    return [loss for epoch in losses for loss in epoch]


def restored(training: Training, folder: Path) -> list[list[float]]:
    """Goes back to the last whole epoch; the losses of all until then."""
    import tensorflow as tf

    latest = tf.train.latest_checkpoint(folder)
    if not latest:
        return []
    training.checkpoint.restore(latest)
    losses: list[list[float]] = json.loads((folder / "losses.json").read_text())
    return losses[: int(training.epoch.numpy())]


def epochs(
    training: Training, losses: list[list[float]], settings: Settings, folder: Path
) -> Iterator[tuple[int, int, float]]:
    """Trains what epochs are left; yields the epoch, steps done and the loss."""
    import tensorflow as tf

    manager = tf.train.CheckpointManager(training.checkpoint, str(folder), 2)
    steps = steps_of(settings)
    for epoch in range(len(losses), settings.epochs):
        losses.append([])
        iterator = iter(training.batches())
        for start in range(0, steps, STEPS_A_CALL):
            count = min(STEPS_A_CALL, steps - start)
            loss = float(training.train(iterator, tf.constant(count)))
            losses[-1].append(loss)
            yield epoch + 1, epoch * steps + start + count, loss
        training.epoch.assign_add(1)
        (folder / "losses.json").write_text(json.dumps(losses))
        manager.save()


def draw(losses: Sequence[float], steps: int, path: Path) -> None:
    """Writes the loss as a curve."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    calls = -(-steps // STEPS_A_CALL)
    axes.plot((np.arange(len(losses)) + 1) / calls, losses)
    axes.set(xlabel="epoch", ylabel="loss", title="Two towers on the CPU")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)


def report(
    data: datasets.Data,
    served: Recommender,
    losses: Sequence[float],
    folder: Path,
    console: Console,
) -> None:
    """Asks the model that was exported, and says how good it is."""
    import tensorflow as tf

    users = tf.range(data.users, dtype=tf.int64)
    ragged: Any = tf.RaggedTensor  # TensorFlow's stubs know little of it.
    history = ragged.from_tensor(tf.constant(data.history))
    scores = served.scores(users, history).numpy()
    console.print(
        f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, in {folder / 'loss.png'}",
        highlight=False,
        soft_wrap=True,
    )
    table = Table("recommended", "the film held out is among ten")
    table.add_row("what everybody watches", f"{data.recall_of_popularity():.1%}")
    table.add_row("by the model that is served", f"{data.recall(scores):.1%}")
    table.add_row("by who knows every taste", f"{data.recall_of_the_truth():.1%}")
    console.print(table)
    console.print(f"exported to {folder / 'serving'}", highlight=False, soft_wrap=True)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def number(name: str, default: int, least: int, words: str) -> None:
        def parsed(text: str) -> int:
            value = int(text)
            if value < least:
                raise ValueError
            return value

        parsed.__name__ = f"number of at least {least}"
        words = f"{words} (default: {default})"
        parser.add_argument(
            f"--{name}", type=parsed, default=default, metavar="N", help=words
        )

    number("epochs", 8, 1, "times that everything is trained")
    number("users", 5000, 10, "users, who watched 20 films each")
    number("films", 2000, 50, "films to choose from")
    number("batch", 512, 2, "examples of a step")
    number("dimension", 32, 1, "columns of a table, and of the towers' vectors")
    number("hosts", 1, 1, "processes that share tables and examples")
    number("seed", 1, 0, "of the data and of what training starts with")
    parser.add_argument(
        "--row-dtype",
        choices=["float32", "float16", "bfloat16", "int8"],
        default="float32",
        help="in which the rows of tables are stored (default: float32)",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("build/two_tower"),
        help="for checkpoints, the curve and the export (default: build/two_tower)",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with the training in the folder, with its settings",
    )
    # What the launcher of several hosts tells one of them.
    parser.add_argument("--host", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--cluster", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
