"""The runner behind the README's test command."""

import pytest

from tests import __main__ as runner

REPORT = """<testsuites><testsuite>
<testcase classname="tests.test_a" name="test_good"/>
<testcase classname="tests.test_a" name="test_bad"><failure message="x"/></testcase>
<testcase classname="tests.test_a" name="test_broken"><error message="x"/></testcase>
<testcase classname="tests.test_a" name="test_elsewhere"><skipped message="only on PostgreSQL"/></testcase>
<testcase classname="tests.test_a" name="test_nowhere"><skipped message="no chromium"/></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def runs(monkeypatch):
    """Run nothing: what would run is listed, and passes."""
    asked = []

    def run(database, arguments):
        asked.append((database.name, arguments))
        return runner.Totals(passed=1)

    monkeypatch.setattr(runner, "run", run)
    monkeypatch.setattr(
        runner, "DATABASES", [runner.DATABASES[0], runner.Database("postgres", "", lambda: "no driver")]
    )
    monkeypatch.delenv("WEBHOOK_GUARD_REQUIRE", raising=False)
    return asked


def main(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["tests", *arguments])
    return runner.main()


def test_totals_name_what_ran_nowhere(tmp_path):
    first, second = tmp_path / "first.xml", tmp_path / "second.xml"
    first.write_text(REPORT)
    second.write_text(REPORT.replace('<skipped message="only on PostgreSQL"/>', ""))
    totals = runner.Totals(left_out={"mariadb": "no driver"})
    totals.add("sqlite", first)
    totals.add("postgres", second)
    assert totals.told().splitlines() == [
        "skipped: the whole run on mariadb: no driver",
        "skipped: tests.test_a::test_nowhere: sqlite: no chromium; postgres: no chromium",
        "not skipped, but made for some databases only and run there: 1 tests",
        "3 passed, 4 failed, 2 skipped",
    ]


def test_what_asks_nothing_of_the_database_runs_once(monkeypatch, runs):
    monkeypatch.setattr(runner, "DATABASES", [runner.DATABASES[0], runner.Database("postgres", "", lambda: "")])
    assert main(monkeypatch) == 0
    assert sorted(runs, reverse=True) == [
        ("sqlite", ["-m", "not long"]),
        ("postgres", ["--asking-the-database", "-m", "not long"]),
    ]


def test_what_is_left_out_is_said(monkeypatch, runs, capsys):
    assert main(monkeypatch, "-k", "this or that") == 0
    assert runs == [("sqlite", ["-m", "not long", "-k", "this or that"])]
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "skipped: the whole run on postgres: no driver",
        "1 passed, 0 failed, 1 skipped",
    ]


def test_markers_of_ones_own_take_the_place_of_the_usual_ones(monkeypatch, runs):
    main(monkeypatch, "--only", "sqlite", "-m", "long")
    assert runs == [("sqlite", ["-m", "long"])]


def test_it_fails_where_nothing_ran(monkeypatch, runs, capsys):
    assert main(monkeypatch, "--only", "postgres") == 1
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 0 failed, 2 skipped"


@pytest.mark.parametrize("required", ["chromium", "sqlite, chromium", "postgre"])
def test_it_fails_where_something_required_is_missing(monkeypatch, runs, capsys, required):
    monkeypatch.setattr(runner, "REQUIRABLE", {"chromium": lambda: "not installed"})
    monkeypatch.setenv("WEBHOOK_GUARD_REQUIRE", required)
    assert main(monkeypatch) == 1
    assert runs == []
    assert "WEBHOOK_GUARD_REQUIRE names" in capsys.readouterr().out


def test_what_is_required_and_there_runs(monkeypatch, runs):
    monkeypatch.setattr(runner, "REQUIRABLE", {"chromium": lambda: ""})
    monkeypatch.setenv("WEBHOOK_GUARD_REQUIRE", "chromium")
    assert main(monkeypatch) == 0
    assert len(runs) == 1


@pytest.mark.parametrize("cores", [1, 2])
def test_totals_of_all_runs_are_added(monkeypatch, runs, capsys, cores):
    databases = [runner.Database(name, "", lambda: "") for name in ("sqlite", "postgres", "mariadb")]
    monkeypatch.setattr(runner, "DATABASES", databases)
    monkeypatch.setattr(runner.os, "cpu_count", lambda: cores)
    assert main(monkeypatch) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "3 passed, 0 failed, 0 skipped"
    assert [name for name, _ in runs if name != "sqlite"] == ["postgres", "mariadb"]


def test_a_run_that_breaks_off_is_a_failure(monkeypatch, capsys):
    found = runner.run(runner.DATABASES[0], ["--no-such-option"])
    assert (found.passed, found.failed) == (0, 1)
    assert "sqlite   | " in capsys.readouterr().out
