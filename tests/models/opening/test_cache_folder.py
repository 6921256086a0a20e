"""The cache: a folder is there whole or not at all, whatever is killed and whoever else is at work."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headwise.errors import ModelError
from headwise.models.opening import cache_folder
from headwise.models.opening.cache_folder import build_once, cache_root, is_whole

# Builds a folder, saying so before and after; between the two it waits for a file. The module is loaded
# alone, without the rest of its package: torch would take most of the test's time.
BUILDER = """
import importlib.util, sys, time
from pathlib import Path
spec = importlib.util.spec_from_file_location("cache_folder", sys.argv[3])
cache_folder = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cache_folder)

def build(folder, scratch):
    with open(sys.argv[1], "a") as log:
        log.write("built\\n")
    (folder / "config.json").write_text("half")
    print("started", flush=True)
    while not Path(sys.argv[2]).exists():
        time.sleep(0.01)
    (folder / "config.json").write_text("whole")

folder = cache_folder.build_once("tiny", build, notify=lambda line: print(line, flush=True))
print((folder / "config.json").read_text(), flush=True)
"""


def fill(folder: Path, scratch: Path) -> None:
    (scratch / "half.tmp").write_text("scratch")
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(bytes(1000))


def never(folder: Path, scratch: Path) -> None:
    raise AssertionError("the folder was there already")


@pytest.fixture
def builder(tmp_path, cache):
    """Start a process that builds the folder `tiny` and does not finish before the file `go` is there."""
    script, started = tmp_path / "builder.py", []
    script.write_text(BUILDER)

    def start() -> subprocess.Popen:
        command = [sys.executable, str(script), str(tmp_path / "log"), str(tmp_path / "go")]
        command.append(cache_folder.__file__)
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_folder_is_built_once(cache):
    folder = build_once("tiny", fill, notify=print)
    assert folder == cache / "models" / "tiny"
    assert (folder / "config.json").read_text() == "{}"
    assert build_once("tiny", never, notify=print) == folder
    assert list((cache / "work").iterdir()) == []


def test_a_build_that_fails_leaves_nothing(cache):
    def fail(folder: Path, scratch: Path) -> None:
        fill(folder, scratch)
        raise ModelError("no more")

    with pytest.raises(ModelError, match="no more"):
        build_once("tiny", fail, notify=print)
    assert list((cache / "models").iterdir()) == list((cache / "work").iterdir()) == []
    assert is_whole(build_once("tiny", fill, notify=print))


def test_a_build_killed_half_way_is_not_taken_for_good(builder, cache):
    process = builder()
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (cache / "models" / "tiny").exists()
    left = list((cache / "work").iterdir())
    assert [path.name.partition(".")[0] for path in left] == ["tiny"]
    # The next one begins anew, and clears away what was left.
    folder = build_once("tiny", fill, notify=print)
    assert (folder / "config.json").read_text() == "{}"
    assert list((cache / "work").iterdir()) == []


def test_two_processes_build_a_folder_once_between_them(builder, tmp_path):
    first = builder()
    assert first.stdout.readline() == "started\n"
    second = builder()
    assert second.stdout.readline() == "another process is preparing tiny; waiting for it\n"
    (tmp_path / "go").touch()
    assert [process.stdout.read() for process in (first, second)] == ["whole\n", "whole\n"]
    assert (tmp_path / "log").read_text() == "built\n"


def test_a_process_that_waited_for_a_killed_one_builds_itself(builder, tmp_path):
    first = builder()
    assert first.stdout.readline() == "started\n"
    second = builder()
    assert second.stdout.readline().startswith("another process is preparing tiny")
    first.kill()
    assert second.stdout.readline() == "started\n"
    (tmp_path / "go").touch()
    assert second.stdout.read() == "whole\n"
    assert (tmp_path / "log").read_text() == "built\n" * 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "model.safetensors").unlink(),
        lambda folder: (folder / "model.safetensors").write_bytes(b"short"),
        lambda folder: (folder / "headwise-manifest.json").unlink(),
        lambda folder: (folder / "headwise-manifest.json").write_text("[1]"),
        lambda folder: (folder / "headwise-manifest.json").write_text('{"a'),
    ],
)
def test_a_damaged_folder_is_built_again(cache, damage):
    folder = build_once("tiny", fill, notify=print)
    damage(folder)
    said: list[str] = []
    assert build_once("tiny", fill, notify=said.append) == folder
    assert is_whole(folder)
    assert said == [f"{folder} is incomplete; replacing it"]


def test_a_cache_that_cannot_be_written_is_named_with_the_way_out(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelError, match=r"cache folder .*file cannot be used: .*HEADWISE_CACHE"):
        build_once("tiny", fill, notify=print)


def test_the_cache_folder_is_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HEADWISE_CACHE", "~/mine")
    assert cache_root() == tmp_path / "mine"
    monkeypatch.delenv("HEADWISE_CACHE")
    assert cache_root() == tmp_path / "xdg" / "headwise"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_root() == tmp_path / ".cache" / "headwise"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_root() == tmp_path / ".cache" / "headwise"


def test_a_finished_folder_was_flushed_to_the_disk_before_it_got_its_name(cache, monkeypatch):
    order: list[str] = []
    flush, move = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (order.append("flush"), flush(handle))[1])
    monkeypatch.setattr(Path, "replace", lambda self, to: (order.append("move"), move(self, to))[1])
    build_once("tiny", fill, notify=print)
    # Two files, the manifest and the folder before the move; the folder above after it.
    assert order == ["flush"] * 4 + ["move", "flush"]
