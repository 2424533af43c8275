"""Scopes: graphs, names, devices and control dependencies, in every mode."""

import inspect
from contextlib import nullcontext

import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from opwright import OpInputError, OpModeError, Scope, op_class
from opwright.math import AddV2, add_v2
from support.processes import run_code

X = tf.constant([[1.0, 2.0], [3.0, 4.0]])


def add(scope):
    return AddV2.create(scope, 1, 2)


def test_scope_current_eager_is_singleton():
    scope = Scope.current()
    assert scope is Scope.current()
    assert scope.eager
    assert scope.graph is None
    assert scope.env() is context.context()
    assert repr(scope) == "<Scope eager>"


def test_current_is_the_graph_being_built():
    with tf.Graph().as_default() as graph:
        assert Scope.current().graph is graph
        assert not Scope.current().eager
        assert Scope.current().env() is graph
        with tf.init_scope():
            assert Scope.current().graph is graph

    @tf.function
    def body():
        assert Scope.current().graph is tf.compat.v1.get_default_graph()
        with tf.init_scope():
            assert Scope.current().eager

    body()


def test_scope_assignment_raises():
    scope = Scope.current()
    with pytest.raises(AttributeError, match="immutable"):
        scope.graph = tf.Graph()
    with pytest.raises(AttributeError, match="immutable"):
        del scope.graph
    for changed in (
        scope.sub_scope("a"),
        scope.with_name("a"),
        scope.with_device("/cpu:0"),
        scope.with_control_dependencies([]),
    ):
        assert changed is not scope
    assert scope is Scope.current()
    with pytest.raises(TypeError, match=r"takes a tf\.Graph, not 'graph'"):
        Scope("graph")
    with pytest.raises(TypeError, match=r"not nothing; Scope\.current\(\) is the"):
        Scope()
    assert str(inspect.signature(Scope)) == "(graph: 'tf.Graph') -> 'None'"


def test_scope_names_are_those_of_operations():
    with tf.Graph().as_default():
        scope = Scope.current()
        named = scope.with_name("sum")
        assert add(named).op.name == "sum"
        assert add(named).op.name == "sum_1"
        assert add(scope).op.name == "AddV2"
        assert add(Scope.current("given")).op.name == "given"
        assert add_v2(1, 2, name="function").op.name == "function"


def test_scope_sub_scopes_prefix_names():
    with tf.Graph().as_default():
        scope = Scope.current()
        outer = scope.sub_scope("outer")
        inner = outer.sub_scope("inner")
        assert add(outer).op.name == "outer/AddV2"
        assert add(outer).op.name == "outer/AddV2_1"
        assert add(inner.with_name("sum")).op.name == "outer/inner/sum"
        assert add(scope.sub_scope("outer")).op.name == "outer_1/AddV2"
        assert add(outer.sub_scope("inner")).op.name == "outer/inner_1/AddV2"
        with tf.name_scope("around"):
            assert add(scope).op.name == "around/AddV2"
            assert add(outer).op.name == "outer/AddV2_2"
        # What makes an op's inputs goes by the op's name.
        assert add(inner).op.inputs[1].op.name == "outer/inner/AddV2/y"


def test_scope_eager_names_apply_in_graph():
    scope = Scope.current().sub_scope("outer").sub_scope("inner").with_name("sum")
    assert int(add(scope).z) == 3
    with tf.Graph().as_default():
        assert add(scope).op.name == "outer/inner/sum"
        with tf.name_scope("around"):
            assert add(scope).op.name == "around/outer/inner/sum"


def test_scope_devices_in_graph_reach_operations():
    with tf.Graph().as_default():
        scope = Scope.current()
        assert add(scope).op.device == ""
        assert add(scope.with_device("/cpu:0")).op.device == "/device:CPU:0"
        job = scope.with_device("/job:worker")
        assert add(job.with_device("/gpu:1")).op.device == "/job:worker/device:GPU:1"
        assert add(job.with_device(None)).op.device == ""
        spec = tf.DeviceSpec(device_type="CPU", device_index=2)
        assert add(scope.with_device(spec)).op.device == "/device:CPU:2"
        with tf.device("/task:3"):
            assert add(job).op.device == "/job:worker/task:3"
    eager = Scope.current().with_device("/cpu:0")
    with tf.Graph().as_default():
        assert add(eager).op.device == "/device:CPU:0"


class SeesDevice:
    """A tensor that notes the device on which it was requested."""

    def __init__(self):
        self.device = None

    def __tf_tensor__(self, dtype=None, name=None):
        self.device = context.context().device_name
        return X


def test_devices_of_eager_mode():
    scope = Scope.current().with_device("/job:localhost").with_device("/cpu:0")
    assert not scope.eager
    seen = SeesDevice()
    AddV2.create(scope, seen, 1)
    assert seen.device == "/job:localhost/replica:0/task:0/device:CPU:0"
    AddV2.create(Scope.current(), seen, 1)
    assert not seen.device


def test_devices_of_eager_mode_with_nothing_to_convert():
    soft = tf.config.get_soft_device_placement()
    tf.config.set_soft_device_placement(False)
    try:
        with pytest.raises(tf.errors.InvalidArgumentError, match="device:GPU:77"):
            AddV2.create(Scope.current().with_device("/gpu:77"), X, X)
    finally:
        tf.config.set_soft_device_placement(soft)


def waits_for(op):
    """The operations that an op and the constants made for it wait for."""
    operations = [op.op, *(tensor.op for tensor in op.op.inputs)]
    return {before for each in operations for before in each.control_inputs}


@pytest.mark.parametrize("device", ["gpux:0", "/task:x", 3])
def test_scope_with_device_of_no_device_raises_at_once(device):
    with pytest.raises(OpInputError) as caught:
        Scope.current().with_device(device)
    assert caught.value.argument == "device"
    assert str(caught.value) == (
        "Scope.with_device: device must be a device as tf.device takes it, such as "
        f"'/device:GPU:0' or '/job:worker', not {device!r}"
    )


def test_scope_with_device_of_every_kind_is_accepted():
    cpu = tf.config.list_logical_devices("CPU")[0]
    for device in ("cpu", "", None, tf.DeviceSpec(), cpu, lambda operation: "/cpu:0"):
        Scope.current().with_device(device)
    assert int(add(Scope.current().with_device(cpu)).z) == 3


def test_scope_with_name_that_graphs_refuse_raises_at_once():
    with tf.Graph().as_default():
        with pytest.raises(OpInputError) as caught:
            Scope.current().with_name("c/ 1")
        assert str(caught.value) == (
            "Scope.with_name: op_name must be letters, digits and characters of "
            r"_.\/>-, not 'c/ 1'"
        )


def test_scope_with_empty_name_raises_at_once():
    with pytest.raises(OpInputError, match="op_name must be a name, not ''"):
        Scope.current().with_name("")
    with tf.Graph().as_default():
        # As in TensorFlow.
        assert add_v2(1, 2, name="").op.name == "AddV2"


def test_op_name_of_another_type_is_named():
    must = r"AddV2: name must be letters.*, not 3"
    with tf.Graph().as_default(), pytest.raises(OpInputError, match=must):
        add_v2(1, 2, name=3)


@pytest.mark.parametrize("name", ["_x", "a b", "", 3])
def test_sub_scope_name_that_graphs_refuse_is_named(name):
    with tf.Graph().as_default():
        with pytest.raises(OpInputError) as caught:
            Scope.current().sub_scope(name)
        assert str(caught.value).startswith("Scope.sub_scope: name must be ")
        assert str(caught.value).endswith(f", not {name!r}")
        inner = Scope.current().sub_scope("around").sub_scope("_x")
        assert add(inner).op.name == "around/_x/AddV2"


def test_sub_scope_name_that_only_its_place_refuses_is_named():
    scope = Scope.current().sub_scope("_x")
    with tf.Graph().as_default():
        with pytest.raises(OpInputError, match=r"Scope\.sub_scope: name .*, not '_x/'"):
            add(scope)
        with tf.name_scope("around"):
            assert add(scope).op.name == "around/_x/AddV2"


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_single_control_dependency_is_refused_with_remedy(mode):
    with tf.Graph().as_default() if mode == "graph" else nullcontext():
        op = add(Scope.current())
        for control in (op, op.z, op_class("TopKV2").create(Scope.current(), [1.0], 1)):
            with pytest.raises(
                OpInputError, match=r"write \[\.\.\.\] around it"
            ) as caught:
                Scope.current().with_control_dependencies(control)
            assert caught.value.argument == "controls"


@pytest.mark.parametrize("controls", [["AddV2"], [3], "AddV2", 3, None])
def test_control_dependencies_of_another_kind_are_refused(controls):
    with pytest.raises(OpInputError) as caught:
        Scope.current().with_control_dependencies(controls)
    given = controls[0] if isinstance(controls, list) else controls
    only = " only" if isinstance(controls, list) else ""
    assert str(caught.value) == (
        "Scope.with_control_dependencies: controls must be a list of operations, "
        f"tensors and ops{only}, not {given!r}"
    )


def test_control_dependency_of_another_graph_is_refused():
    other = add(Scope(tf.Graph()).with_name("other"))
    for control in (other, other.op, other.z):
        with pytest.raises(OpInputError) as caught:
            add(Scope(tf.Graph()).with_control_dependencies([control]))
        assert str(caught.value).startswith(
            "Scope.with_control_dependencies: other is in another graph than the op "
        )


@pytest.mark.parametrize("name", ["c/ 1", "_x"])
def test_op_name_that_graphs_refuse_is_named(name):
    with tf.Graph().as_default() as graph:
        with pytest.raises(OpInputError) as caught:
            add_v2(1, 2, name=name)
        assert not graph.get_operations()
        assert (caught.value.op, caught.value.argument) == ("AddV2", "name")
        assert str(caught.value) == (
            r"AddV2: name must be letters, digits and characters of _.\/>- that begin "
            f"with a letter, a digit or a dot, not {name!r}"
        )
        with tf.name_scope("around"):
            assert add_v2(1, 2, name="_x").op.name == "around/_x"
    assert int(add_v2(1, 2, name=name)) == 3


def test_scope_control_dependencies_reach_operation():
    with tf.Graph().as_default():
        scope = Scope.current()
        x = tf.compat.v1.placeholder(tf.float32)
        first, second = add(scope), op_class("NoOp").create(scope)
        top = op_class("TopKV2").create(scope, [1.0, 2.0], 1)
        controls = [first, first.op, first.z, second, top]
        after = scope.with_control_dependencies(controls)
        found = AddV2.create(after, x, x).op.control_inputs
        assert set(found) == {first.op, second.op, top.op}
        assert len(found) == 3
        third = add(scope)
        later = after.with_control_dependencies([third])
        assert waits_for(add(later)) == {first.op, second.op, top.op, third.op}
        assert waits_for(add(scope)) == set()


def test_control_dependencies_of_eager_mode_have_run():
    scope = Scope.current()
    first = add(scope)
    none = op_class("NoOp").create(scope)
    after = scope.with_control_dependencies([first, first.z, none])
    assert after.eager
    assert int(add(after).z) == 3
    with tf.Graph().as_default():
        assert waits_for(add(after)) == set()


def test_scope_settings_in_tf_function_apply():
    made = []

    @tf.function
    def body():
        scope = Scope.current().sub_scope("sub").with_device("/cpu:0")
        made.append(add(scope))
        last = scope.with_control_dependencies(made).with_name("last")
        made.append(add(last))
        return made[-1]

    assert int(body()) == 3
    first, last = made
    assert [first.op.name, last.op.name] == ["sub/AddV2", "sub/last"]
    assert waits_for(last) == {first.op}
    assert last.op.device == "/device:CPU:0"


def test_scope_of_graph_adds_to_it_from_outside():
    graph = tf.Graph()
    op = add(Scope(graph).sub_scope("sub"))
    assert op.op.graph is graph
    assert op.op.name == "sub/AddV2"
    with tf.Graph().as_default() as other:
        assert add(Scope(graph)).op.graph is graph
        assert not other.get_operations()
    assert tf.executing_eagerly()


def test_inputs_of_another_graph_are_refused():
    graph = tf.Graph()
    x = add(Scope(tf.Graph())).z
    with pytest.raises(OpInputError) as caught:
        AddV2.create(Scope(graph), x, 1)
    assert str(caught.value) == (
        "AddV2: x is a tensor of another graph, AddV2:0, which this graph cannot reach"
    )
    with pytest.raises(OpInputError) as caught:
        AddV2.create(Scope(graph), 1, X)
    assert caught.value.argument == "y"
    assert "y is an eager tensor, which a tf.Graph does not take" in str(caught.value)


def test_tensor_of_graph_in_eager_mode_says_where_the_op_can_go():
    x = add(Scope(tf.Graph())).z
    with pytest.raises(OpInputError) as caught:
        add_v2(x, X)
    assert str(caught.value) == (
        "AddV2: x is a tensor of a graph, AddV2:0, which eager mode cannot reach; to "
        "add the op to that graph, call create of the class with Scope(graph)"
    )
    made = []
    tf.function(lambda x: made.append(x), autograph=False)(X)
    with pytest.raises(OpInputError, match="return it from the function that makes it"):
        add_v2(X, made[0])


def test_scope_of_finished_function_is_refused():
    scopes = []

    @tf.function
    def body():
        scopes.append(Scope.current())

    body()
    with pytest.raises(OpModeError) as caught:
        add(scopes[0])
    assert str(caught.value) == (
        "AddV2: the scope belongs to the tf.function body, which is built already; "
        "take Scope.current() in the function that makes the op"
    )


def test_scope_in_inner_function_is_refused():
    @tf.function
    def body(x):
        scope = Scope.current()
        return tf.cond(x > 0, lambda: add(scope).z, lambda: 0)

    with pytest.raises(OpModeError, match="is being built within it"):
        body(tf.constant(1))

    with tf.Graph().as_default():
        outside = Scope.current()

        @tf.function
        def another():
            return add(outside).z

        with pytest.raises(OpModeError, match="is being built within it"):
            another()

    @tf.function
    def foreign():
        return add(Scope(tf.Graph())).z

    with pytest.raises(
        OpModeError, match=r"another graph than the tf\.function foreign"
    ):
        foreign()


def test_scope_of_finalized_graph_raises():
    graph = tf.Graph()
    graph.finalize()
    with pytest.raises(RuntimeError, match="finalized"):
        add(Scope(graph))


@pytest.mark.slow  # In a process with TensorFlow.
def test_graph_mode_without_eager_execution():
    """For all of a process, so in one of its own."""
    program = """
import tensorflow as tf
tf.compat.v1.disable_eager_execution()
from opwright import Scope
from opwright.math import AddV2, add_v2
scope = Scope.current()
assert not scope.eager
op = AddV2.create(scope, 1, [2, 3])
tensor = add_v2(1, [2, 3])
assert op.op.graph is tensor.graph is tf.compat.v1.get_default_graph()
with tf.compat.v1.Session() as session:
    assert session.run(op).tolist() == session.run(tensor).tolist() == [3, 4]
"""
    done = run_code(program)
    assert done.returncode == 0, done.stderr
