"""Standard streams that are full, closed or left by their reader: told, and never at the cost of a run."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path

import pytest

from occamrl.experiments.display import Display
from occamrl.experiments.execution import Experiment
from occamrl.experiments.records import status
from tests.experiments.common import COMMAND, play, write

FULL = Path("/dev/full")


def shell(line: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a line of shell in which "$@" is the command."""
    arguments = ["sh", "-c", line, "sh", *COMMAND, *map(str, words)]
    return subprocess.run(arguments, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streams")
    return play(Experiment.from_toml(write(folder)), folder / "out").path


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full, /dev/full")
@pytest.mark.parametrize("words", [["status"], ["resume", "--json"]])
def test_output_that_is_full_is_one_message_and_a_code(out: Path, words: list[str]) -> None:
    answer = shell('"$@" >/dev/full', *words, out)
    assert (answer.returncode, answer.stderr) == (1, "the system refused: [Errno 28] No space left on device\n")


def test_a_reader_that_leaves_is_no_error_to_talk_about(out: Path) -> None:
    answer = shell('("$@"; echo code $? >&2) | true', "status", out)
    assert answer.stderr in ("code 1\n", "code 0\n")  # the little there is may have been taken before it left


def test_a_run_without_any_streams(out: Path) -> None:
    copy = out.with_name("closed")
    answer = shell('"$@" <&- >&- 2>&-', "run", out / "spec.toml", "--out", copy, "--workers", 1)
    assert answer.returncode == 0
    assert len(status(copy).cells) == 4


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_progress_that_cannot_be_written_ends_nothing() -> None:
    Display(Full())({"event": "failed", "cell": "x", "problem": "p", "agent": "a", "seed": 0, "text": "why"})


def test_errors_are_objects_for_programs(out: Path) -> None:
    answer = shell('"$@"', "status", out / "nowhere", "--json")
    assert answer.returncode == 1
    told = json.loads(answer.stdout)
    assert (told["event"], told["kind"]) == ("error", "RecordError")
    spec = out.with_name("bad.toml")
    spec.write_text("nam = 1")
    answer = shell('"$@"', "run", spec, "--out", out, "--json")
    assert answer.returncode == 2
    told = json.loads(answer.stdout)
    assert {fault["key"] for fault in told["faults"]} == {"nam", "name", "episodes", "seeds", "problem", "agent"}
    assert set(told["faults"][0]) == {"key", "got", "expected"}
