"""The files below .github parse; workflows have limits, and targets that exist."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from support.places import ROOT

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
TARGETS = set(
    re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
)


def jobs(text: str) -> dict[str, Any]:
    return dict(yaml.safe_load(text)["jobs"])


def make_targets(job: Any) -> set[str]:
    """The make targets of a job; a target from the matrix counts with each value."""
    matrix = job.get("strategy", {}).get("matrix", {})
    found: set[str] = set()
    for step in job["steps"]:
        for arguments in re.findall(r"^make (.+)$", step.get("run", ""), re.MULTILINE):
            for name in re.findall(r"\$\{\{ matrix\.(\w+) \}\}", arguments):
                found |= set(matrix[name])
            plain = re.sub(r"\$\{\{.*?\}\}", "", arguments).split()
            found |= {word for word in plain if "=" not in word}
    return found


def test_workflows_exist_for_tests_and_releases() -> None:
    assert {path.name for path in WORKFLOWS} == {"release.yml", "test.yml"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_make_targets_exist(path: Any) -> None:
    wanted = set().union(*map(make_targets, jobs(path.read_text("utf-8")).values()))
    assert wanted
    assert wanted - TARGETS == set()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_jobs_have_timeouts_and_read_only_default_permissions(
    path: Any,
) -> None:
    text = path.read_text("utf-8")
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
    without = [name for name, job in jobs(text).items() if "timeout-minutes" not in job]
    assert without == []


def test_workflow_tests_run_on_every_python_of_the_metadata() -> None:
    tested = jobs((GITHUB / "workflows/test.yml").read_text("utf-8"))["test"]
    classifiers = re.findall(
        r'"Programming Language :: Python :: (3\.\d+)"',
        (ROOT / "pyproject.toml").read_text("utf-8"),
    )
    assert tested["strategy"]["matrix"]["python"] == classifiers


@pytest.mark.parametrize("name", ["dependabot.yml", "ISSUE_TEMPLATE/config.yml"])
def test_github_configuration_parses(name: str) -> None:
    assert isinstance(yaml.safe_load((GITHUB / name).read_text("utf-8")), dict)


def test_issue_templates_name_the_private_form() -> None:
    """A bug that is a vulnerability leads to the address that SECURITY.md gives."""
    form = "https://github.com/opwright/opwright/security/advisories/new"
    for name in (".github/ISSUE_TEMPLATE/bug.md", "SECURITY.md", "CODE_OF_CONDUCT.md"):
        assert form in (ROOT / name).read_text("utf-8"), name
