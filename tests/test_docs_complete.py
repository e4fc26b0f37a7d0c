"""Pages that promise every row or every field have them all, as the code has them."""

import dataclasses
import re
from pathlib import Path

import pytest

import tvm_tilex as tx
from tvm_tilex import errors
from tvm_tilex.analysis.admission import ROWS
from tvm_tilex.build.target_config import target_configs
from tvm_tilex.ir.ops import ReductionPolicy
from tvm_tilex.plan import Candidate, GroupPlan
from tvm_tilex.tools.cli import tilex

DOCS = Path(__file__).parent.parent / "docs"


def page(name):
    return (DOCS / name).read_text(encoding="utf-8")


def test_the_admission_page_has_every_row_in_order_with_a_rule_and_an_example():
    table = re.findall(
        r"^\| ([^|]+) \| [^|]+ \| \[.*\]\(#([\w-]+)\) \|$", page("admission.md"), re.M
    )
    assert [name for name, _ in table] == list(ROWS)
    assert [anchor for _, anchor in table] == [row.lower().replace(" ", "-") for row in ROWS]


@pytest.mark.parametrize("row", ROWS)
def test_a_rows_section_shows_the_verdict_that_refuses_its_example(row):
    sections = re.split(r"^## ", page("admission.md"), flags=re.M)
    (section,) = [s for s in sections if s.splitlines()[0].lower() == row.lower()]
    (shown,) = re.findall(r"^```text title=\"Output\"\n(.*?)^```", section, re.M | re.S)
    assert shown.startswith(f"{row}: ")  # test_docs_code.py compares it with what is printed


@pytest.mark.parametrize(
    "name",
    [
        *(field.name for field in dataclasses.fields(GroupPlan)),
        *(field.name for field in dataclasses.fields(Candidate)),
        *(name for name, found in vars(GroupPlan).items() if isinstance(found, property)),
    ],
)
def test_the_plan_page_explains_every_field(name):
    if not name.startswith("_"):
        assert re.search(rf"`(?:plan\.)?{name}`", page("reading-a-plan.md")), name


def test_the_target_page_explains_every_key_of_a_description():
    text = page("adding-a-target.md")
    keys = {"kind", "device_names", "attributes", "limits", "cost"}
    required = {"thread_warp_size", "max_num_threads", "max_shared_memory_per_block"}
    for name in keys | required | {config.policy for config in target_configs().values()} - {""}:
        assert f"`{name}`" in text, name


@pytest.mark.parametrize("name", tx.__all__)
def test_the_reference_has_every_public_name(name):
    assert re.search(rf"`[^`\n]*\btx\.{name}\b", page("reference.md")), name


@pytest.mark.parametrize(
    "name",
    [
        *(field.name for field in dataclasses.fields(tx.CompileOptions)),
        *errors.__all__,
        *ReductionPolicy.__members__,
        *("proof", "plan", "group_plans", "fallback", "source", "requires_precise_math"),
        *(field.name for field in dataclasses.fields(tx.Artifact)),
    ],
)
def test_the_reference_has_every_option_error_policy_and_stage(name):
    own = ("name", "text_only", "recompile")  # of the artifact itself, not of its user
    assert name in own or re.search(rf"`{name}`", page("reference.md")), name


def test_the_reference_has_every_command_and_every_switch():
    text = page("reference.md")
    for command in tilex.list_commands(None):
        assert f"`tilex {command} " in text or f"`tilex {command}`" in text, command
    package = Path(tx.__file__).parent
    sources = "".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
    for variable in set(re.findall(r"\bTILEX_[A-Z_]+\b", sources)):
        assert f"`{variable}`" in text, variable


def test_the_glossary_is_sorted():
    words = re.findall(r"^\| ([^|]+) \|", page("glossary.md"), re.M)[2:]
    assert words == sorted(words, key=lambda word: word.lower().replace("-", ""))
