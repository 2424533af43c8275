"""`opwright-codegen release`: one wheel of a project, for several TensorFlows, tested.

`command.py` has the arguments and the order of the steps, `plan.py` chooses versions
and interpreters, `project.py` reads the project, `tasks.py` has what the steps do, and
`table.py` prints the result. The steps are recorded as those of `upgrade` are.
"""
