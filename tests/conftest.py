"""What every test shares: one flag to write golden files anew, and the rule that an engine test must run in CI."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "data" / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--refresh-golden",
        action="store_true",
        help="write golden files, and the outputs quoted in README and docs, anew instead of comparing",
    )


@pytest.fixture(scope="session", autouse=True)
def own_data_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Measured starts that a user keeps decide no test, and none is kept there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with tests/data/golden/NAME, or writes it there with --refresh-golden."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--refresh-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{name} is missing; --refresh-golden writes it"
        assert text == path.read_text(encoding="utf-8")

    return check


class EngineTestsRan:
    """With KVADVISE_REQUIRE_ENGINE set, a session whose engine tests were skipped, or absent, has failed."""

    def __init__(self) -> None:
        self.skipped: list[str] = []
        self.ran = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if "engine" not in report.keywords:
            return
        if report.skipped:
            self.skipped.append(report.nodeid)
        elif report.when == "call":
            self.ran += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workerinput") or session.config.option.collectonly:
            return
        if self.skipped or not self.ran:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for nodeid in self.skipped:
            terminalreporter.write_line(f"KVADVISE_REQUIRE_ENGINE is set, but {nodeid} was skipped", red=True)
        if not self.ran:
            terminalreporter.write_line("KVADVISE_REQUIRE_ENGINE is set, but no engine test ran", red=True)


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("KVADVISE_REQUIRE_ENGINE") == "1":
        config.pluginmanager.register(EngineTestsRan(), "engine-tests-ran")
