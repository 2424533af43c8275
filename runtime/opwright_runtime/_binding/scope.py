"""Scope: where an op goes, and its name, device and control dependencies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeAlias

import tensorflow as tf

from opwright_runtime import errors
from opwright_runtime._binding.signatures import describe_missing_args
from opwright_runtime._internals import (
    CompositeTensor,
    TensorType,
    context,
    graphs,
    ops,
)

if TYPE_CHECKING:
    from opwright_runtime._binding.protocol import OpLike

Device: TypeAlias = str | tf.DeviceSpec | Callable[[tf.Operation], str] | None
Control: TypeAlias = "tf.Operation | tf.Tensor | OpLike"

# The names that TensorFlow accepts, in a name scope and outside of any.
_NAME = re.compile(r"[A-Za-z0-9_.\\/>-]*")
_FIRST_NAME = re.compile(r"([A-Za-z0-9.][A-Za-z0-9_.\\/>-]*)?")


class Scope:
    """Where an op goes, and its name, device and control dependencies.

    A scope is immutable; its methods return changed copies. `Scope.current()` is eager
    if TensorFlow executes eagerly. Otherwise it is bound to the graph that is being
    built: a `tf.Graph` or the body of a `tf.function`. An eager scope that is used
    while a graph is being built adds to that graph.

    `Scope(graph)` adds ops to `graph` from wherever it is used.

    Attributes:
        graph: the graph that the scope is bound to; None for an eager scope.
        eager: whether an op can run at once, without any setup.
        op_name: the name of ops; None for their OP_NAMEs.
        plain: whether an op in a graph needs no setup but a name.
        checked: whether ops in graphs check their conditions when they run.
    """

    __slots__ = (
        "_controls",
        "_devices",
        "_prefix",
        "checked",
        "eager",
        "graph",
        "op_name",
        "plain",
    )

    graph: tf.Graph | None
    eager: bool
    op_name: str | None
    plain: bool
    checked: bool
    _prefix: str
    _devices: tuple[Device, ...]
    _controls: tuple[Control, ...]

    def __init__(self, graph: tf.Graph) -> None:
        if not isinstance(graph, tf.Graph):
            what = "nothing" if graph is errors.MISSING else errors.repr_short(graph)
            raise TypeError(
                f"Scope takes a tf.Graph, not {what}; Scope.current() is the scope of "
                "the calling context"
            )
        _fill(self, graph, None, "", (), (), False)

    @staticmethod
    def current(name: str | None = None) -> Scope:
        """The scope of the calling context.

        Args:
            name: the op's name, as `with_name` takes it.
        """
        if context.executing_eagerly():
            return HERE if name is None else HERE.with_name(name)
        return _new(ops.get_default_graph(), name, "", (), ())

    def sub_scope(self, name: str) -> Scope:
        """A scope whose ops' names begin with `name/`.

        In a bound scope, a prefix that exists is made unique, as in `tf.name_scope`:
        `name_1/`. Eager execution ignores prefixes.

        Raises:
            OpInputError: `name` is no name that TensorFlow accepts there.
        """
        within = bool(self._prefix or self.graph is None or self.graph.get_name_scope())
        _require_name("Scope.sub_scope", "name", name, within=within)
        if not name:
            raise errors.bad_argument(
                errors.OpInputError, "Scope.sub_scope", "name", name, "a name"
            )
        if self.graph is None:
            prefix = f"{self._prefix}{name}/"
        else:
            with ExitStack() as stack:
                if self._prefix:
                    stack.enter_context(self.graph.name_scope(self._prefix))
                prefix = stack.enter_context(self.graph.name_scope(name))
        return self._with(op_name=None, prefix=prefix)

    def with_name(self, op_name: str) -> Scope:
        """A scope whose ops are named `op_name`, made unique in the graph.

        Eager execution ignores the name.

        Raises:
            OpInputError: the name is empty, or the scope is bound, and TensorFlow
                refuses the name.
        """
        if isinstance(op_name, str) and not op_name:
            raise errors.bad_argument(
                errors.OpInputError, "Scope.with_name", "op_name", op_name, "a name"
            )
        if self.graph is not None:
            # Which name scope is before the name depends on where the op is made.
            _require_name("Scope.with_name", "op_name", op_name, within=True)
        return self._with(op_name=op_name)

    def with_device(self, device: Device) -> Scope:
        """A scope whose ops go to `device`, given as `tf.device` takes it.

        An earlier `with_device` or a surrounding `tf.device` decides the parts that
        `device` leaves open.

        Raises:
            OpInputError: TensorFlow does not understand `device`.
        """
        _check_device(device)
        return self._with(devices=(*self._devices, device))

    def with_control_dependencies(self, controls: Iterable[Control]) -> Scope:
        """A scope whose ops run after `controls`: operations, tensors, ops.

        Eager execution ignores `controls`, because they have run already.

        Raises:
            OpInputError: `controls` is no list of these.
        """
        controls = _controls(controls)
        return self._with(controls=(*self._controls, *controls))

    def with_checks(self) -> Scope:
        """A scope whose ops in graphs check their conditions when they run.

        Without this, opwright checks only conditions whose shapes and values are known
        when an op is added to the graph. Other shapes or values may end the process
        when the op runs. The checks are `Assert` ops, on which the ops depend. XLA
        leaves them out.
        """
        return self._with(checked=True)

    def _with(self, **changes: Any) -> Scope:
        """A copy with changes of `_fill`'s arguments."""
        values = {
            "op_name": self.op_name,
            "prefix": self._prefix,
            "devices": self._devices,
            "controls": self._controls,
            "checked": self.checked,
        }
        return _new(self.graph, **(values | changes))

    def env(self) -> Any:
        """The `tf.Graph` that ops of this scope are added to, or the eager context."""
        if self.graph is not None:
            return self.graph
        if context.executing_eagerly():
            return context.context()
        return ops.get_default_graph()

    @contextmanager
    def entered(self, graph: tf.Graph | None) -> Iterator[None]:
        """Sets up device, prefix and control dependencies; `graph` None for eager."""
        with ExitStack() as stack:
            if graph is not None:
                if self._prefix:
                    prefix = self._prefix
                    around = ""
                    if self.graph is None:
                        around = graph.get_name_scope()
                        of = "Scope.sub_scope"
                        _require_name(of, "name", prefix, within=bool(around))
                    prefix = f"{around}/{prefix}" if around else prefix
                    stack.enter_context(graph.name_scope(prefix))
                if self._controls:
                    found = (_operation(control) for control in self._controls)
                    operations = [one for one in found if one is not None]
                    _require_reachable(operations, graph)
                    stack.enter_context(graph.control_dependencies(operations))
            for device in self._devices:
                stack.enter_context(tf.device(device))
            yield

    def target(self, op_name: str) -> tf.Graph:
        """The graph to add an op to.

        Raises:
            OpModeError: the scope is bound to a graph that cannot take it here.
        """
        current = ops.get_default_graph()
        graph = self.graph
        if graph is None or graph is current:
            return current
        if current.building_function or graph.building_function:
            raise errors.make(
                errors.OpModeError,
                op_name,
                f"{op_name}: {_misuse(graph, current)}; take Scope.current() in the "
                "function that makes the op",
                argument="scope",
                given=self,
            )
        return graph

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("Scope is immutable; its with_...() make changed copies")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("Scope is immutable")

    def __repr__(self) -> str:
        if self.graph is None:
            parts = ["eager"]
        else:
            parts = [getattr(self.graph, "name", None) or "graph"]
        if self._prefix or self.op_name:
            parts.append(repr(self._prefix + (self.op_name or "")))
        parts += [f"device {device!r}" for device in self._devices]
        if self._controls:
            parts.append(f"{len(self._controls)} control dependencies")
        parts += ["checked"] if self.checked else []
        return f"<Scope {', '.join(parts)}>"


describe_missing_args(Scope.__init__)


def _check_device(device: Any) -> None:
    kinds = (tf.DeviceSpec, tf.config.LogicalDevice)
    if device is None or isinstance(device, kinds) or callable(device):
        return
    cause = None
    if isinstance(device, str):
        try:
            tf.DeviceSpec.from_string(device)
        except ValueError as error:
            cause = error
        else:
            return
    raise errors.bad_argument(
        errors.OpInputError,
        "Scope.with_device",
        "device",
        device,
        "a device as tf.device takes it, such as '/device:GPU:0' or '/job:worker'",
    ) from cause


def _controls(controls: object) -> tuple[Control, ...]:
    """Control dependencies in a tuple.

    Raises:
        OpInputError: it is one of them and no list, or has something else.
    """
    allowed = "a list of operations, tensors and ops"
    remedy = "write [...] around it" if _is_control(controls) else ""
    if not remedy and isinstance(controls, Iterable) and not isinstance(controls, str):
        found: tuple[Control, ...] = (*controls,)
        wrong = [one for one in found if one is not None and not _is_control(one)]
        if not wrong:
            return found
        allowed, controls = f"{allowed} only", wrong[0]
    raise errors.bad_argument(
        errors.OpInputError,
        "Scope.with_control_dependencies",
        "controls",
        controls,
        allowed,
        remedy=remedy,
    )


def _is_control(value: object) -> bool:
    # A variable of a graph has a handle. An op of opwright has the method.
    kinds = (tf.Operation, tf.Variable, TensorType, CompositeTensor)
    return isinstance(value, kinds) or hasattr(value, "_as_graph_element")


def _require_reachable(controls: Iterable[Control], graph: tf.Graph) -> None:
    """Refuses control dependencies of another graph. A function captures its own."""
    if graph.building_function:
        return
    for control in controls:
        if getattr(control, "graph", graph) is not graph:
            name = getattr(getattr(control, "op", control), "name", control)
            raise errors.make(
                errors.OpInputError,
                "Scope.with_control_dependencies",
                f"Scope.with_control_dependencies: {name} is in another graph than the "
                "op that has to wait for it; take an operation of the op's graph",
                argument="controls",
                given=control,
                allowed="an operation of the op's graph",
            )


def check_name(scope: Scope, op: str, graph: Any) -> None:
    """Refuses a name that TensorFlow does not take for an op in this graph."""
    within = bool(scope._prefix or graph.get_name_scope())
    _require_name(op, "name", scope.op_name, within=within)


def _require_name(op: str, argument: str, name: Any, *, within: bool) -> None:
    """Refuses what is no name, within a name scope or outside of any."""
    pattern = _NAME if within else _FIRST_NAME
    if not isinstance(name, str) or not pattern.fullmatch(name):
        allowed = r"letters, digits and characters of _.\/>-"
        if not within:
            allowed += " that begin with a letter, a digit or a dot"
        raise errors.bad_argument(errors.OpInputError, op, argument, name, allowed)


def _fill(
    scope: Scope,
    graph: tf.Graph | None,
    op_name: str | None,
    prefix: str,
    devices: tuple[Device, ...],
    controls: tuple[Control, ...],
    checked: bool,
) -> None:
    put = object.__setattr__
    put(scope, "graph", graph)
    put(scope, "eager", graph is None and not devices)
    put(scope, "plain", not (prefix or devices or controls))
    put(scope, "op_name", op_name)
    put(scope, "checked", checked)
    put(scope, "_prefix", prefix)
    put(scope, "_devices", devices)
    put(scope, "_controls", controls)


def _new(
    graph: tf.Graph | None,
    op_name: str | None,
    prefix: str,
    devices: tuple[Device, ...],
    controls: tuple[Control, ...],
    checked: bool = False,
) -> Scope:
    scope = object.__new__(Scope)
    _fill(scope, graph, op_name, prefix, devices, controls, checked)
    return scope


HERE = _new(None, None, "", (), ())
"""The eager scope. In graph mode its ops go to the graph of their inputs."""


def named(op_name: str) -> Scope:
    """The eager scope for a function with a `name`, which may be empty."""
    return HERE._with(op_name=op_name)


CHECKING: ContextVar[bool] = ContextVar("checking", default=False)
"""Whether ops that are added to graphs check their conditions when they run."""


@contextmanager
def checked() -> Iterator[None]:
    """Ops that are added to graphs inside check their conditions when they run.

    It does for all ops of opwright what `Scope.with_checks` does for the ops of a
    scope.
    """
    token = CHECKING.set(True)
    try:
        yield
    finally:
        CHECKING.reset(token)


def _operation(control: Any) -> Any:
    """The operation or tensor on which a graph can depend; None for eager results."""
    if isinstance(control, ops.EagerTensor):
        return None
    if hasattr(control, "OP_NAME"):
        return getattr(control, "_operation", None)
    return control


def _misuse(graph: tf.Graph, current: tf.Graph) -> str:
    if graph in graphs.stack:
        return (
            f"the scope belongs to {_graph_name(graph)}, but {_graph_name(current)} is "
            "being built within it"
        )
    if graph.building_function:
        return f"the scope belongs to {_graph_name(graph)}, which is built already"
    return (
        f"the scope belongs to another graph than {_graph_name(current)}, which is "
        "being built"
    )


def _graph_name(graph: tf.Graph) -> str:
    name = getattr(graph, "name", None)
    return f"the tf.function {name}" if name else "the graph"
