"""`opwright-codegen upgrade`: brings opdefs and classes to another TensorFlow.

`command.py` has the steps, `steps.py` runs those that are not finished, `programs.py`
starts other programs, `environment.py` makes the environment with that TensorFlow, and
`report.py` writes what a person reads at the end.
"""
