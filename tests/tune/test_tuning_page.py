"""The page of a report and the table of a run: what they show, and that nothing is loaded."""

import dataclasses
import html.parser
import io
import re

import pytest
from rich.console import Console

import tvm_tilex as tx
from tvm_tilex.tune.job import SubjectSpec
from tvm_tilex.tune.live import LiveTable, progress_table, result_line
from tvm_tilex.tune.page import PlotsMissing, render_page
from tvm_tilex.tune.record import Measurement, Trial
from tvm_tilex.tune.report import Winner
from tvm_tilex.tune.session import new_report

pytest.importorskip("matplotlib", reason="plots need the viz extra")


def trial(index, value=None, status="valid", score=None, **other):
    choices = {"threads_per_group": 32 * index} if index else {}
    measured = (Measurement("modelled", "modelled operations", value, (value,), 1, "modelled"),)
    return Trial(
        candidate=index,
        choices=choices,
        options=tx.CompileOptions(**choices).to_json(),
        status=status,
        facts={"score": score, "plan": {"threads": 32 * index}, "materialization": "preserve"},
        measurements=measured if value is not None else (),
        device="simulator",
        **other,
    )


@pytest.fixture
def report(quick):
    space = quick.space(threads_per_group=tuple(32 * n for n in range(1, 7)))
    settings = quick.settings("metal", "sim-cost", space)
    report = new_report(settings, [SubjectSpec("softmax", ((3, 512),))])
    section = report.sections[0]
    section.trials = [
        trial(0, 40.0, score=5.0),
        trial(1, 30.0, score=3.0),
        trial(2, 20.0, score=4.0),
        trial(3, status="refused", reason="MappingError: too <wide> & more"),
        trial(4, status="crashed", reason="SIGSEGV"),
        trial(5, status="timeout", reason="no answer", attempts=({"device": "d", "reason": "r"},)),
    ]
    section.winner = Winner(trial(2, 20.5), trial(0, 41.0), 20.0, "a\nb\nc", "a\nB\nc")
    section.seconds = 3.0
    report.status = "complete"
    return report


class Tags(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.seen, self.attributes = [], [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        self.attributes += attributes
        if tag not in ("meta", "br", "path", "use", "rect"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        if tag in self.open:
            while self.open.pop() != tag:
                pass


def test_the_page_is_whole_and_loads_nothing(report):
    page = render_page(report)
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert not {"script", "link", "img", "iframe", "object"} & set(tags.seen)
    for name, value in tags.attributes:
        assert name != "src" and not name.startswith("on")
        if name in ("href", "xlink:href"):
            assert value.startswith("#")
    assert "url(http" not in page and "@import" not in page
    assert page.count("<svg") == 3
    assert render_page(report) == page  # the same report, the same page


def test_the_page_shows_every_trial_and_why_it_failed(report):
    page = render_page(report)
    assert "MappingError: too &lt;wide&gt; &amp; more" in page and "<wide>" not in page
    assert "SIGSEGV" in page and "lost with d" in page
    assert "6 trials in 3 s: 3 valid" in page and "1 refused" in page
    assert "modelled by the simulator, no time" in page


def test_the_page_shows_regret_plan_and_difference(report):
    page = render_page(report)
    # The model scores candidate 1 best: 30 against 20.
    assert "<b>threads=32</b>, 50.00 %" in page and "(threads=64)" in page
    assert "20.5 modelled" in page and "41.0 modelled" in page
    assert '<span class="del">-B</span>' in page and '<span class="add">+b</span>' in page
    assert "kernel softmax(" in page


def test_a_page_without_results(report):
    report.sections[0].winner = None
    report.sections[0].trials = [trial(1, status="refused", reason="no")]
    report.status, report.reason = "interrupted", "Ctrl-C"
    page = render_page(report)
    assert "<svg" not in page and "interrupted (Ctrl-C)" in page


def test_plots_carry_the_values(report):
    from tvm_tilex.tune.plots import candidates_plot, regret_plot, scores_plot

    (section,) = report.sections
    for text in (candidates_plot(section, "sim-cost"), scores_plot(section, "sim-cost")):
        assert "modelled operations, no time" in text
    bars = candidates_plot(section, "sim-cost")
    assert bars.index(">threads=64<") < bars.index(">threads=32<") < bars.index(">default<")
    assert "threads=96" not in bars  # refused
    assert "above the best" in regret_plot(section, "sim-cost")
    section.trials = [dataclasses.replace(t, facts=None) for t in section.trials]
    assert scores_plot(section, "sim-cost") is None


def test_without_matplotlib_the_page_says_what_to_install(report, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(PlotsMissing, match=r"tvm-tilex\[viz\]"):
        render_page(report)


# The table of a run.


def printed(console):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue())


def test_lines_where_there_is_no_terminal(report):
    console = Console(file=io.StringIO(), width=200)
    (section,) = report.sections
    done, section.trials = section.trials, []
    with LiveTable("sim-cost", console) as table:
        table.begin(section, 7)
        for one in done:
            section.trials.append(one)
            table.trial(section, one)
        table.finished(section)
    lines = printed(console).splitlines()
    assert lines[0] == "softmax 3x512 float32: 7 candidates"
    assert lines[3] == "3/7 valid    threads=64: 20.0 modelled"
    assert lines[4] == "4/7 refused  threads=96: MappingError: too <wide> & more"
    assert lines[-2] == (
        "softmax 3x512 float32: 20.5 modelled with threads=64; "
        "the default takes 41.0 modelled (2.00x)"
    )
    assert lines[-1] == (
        "  3.0 s (): 5 trials (compiling 0.0, validating 0.0, measuring 0.0 s), "
        "within 2 % of the best after 3; 1 candidates refused"
    )


def test_a_live_table_on_a_terminal(report):
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    (section,) = report.sections
    with LiveTable("sim-cost", console) as table:
        table.begin(section, 7)
        table.trial(section, section.trials[-1])
    shown = " ".join(printed(console).split())
    assert "6 of 7 candidates: 3 valid, 1 refused, 1 crashed, 1 timeout" in shown
    assert shown.index("20.0 modelled") < shown.index("30.0 modelled")


def test_the_table_ranks_the_best(report):
    (section,) = report.sections
    table = progress_table(section, 7, "sim-cost")
    assert list(table.columns[0].cells) == ["20.0 modelled", "30.0 modelled", "40.0 modelled"]


def test_a_section_without_a_winner(report):
    (section,) = report.sections
    section.winner, section.ended = None, "none of 6 trials was valid"
    assert result_line(section, "sim-cost").endswith("no winner, none of 6 trials was valid")
