"""What libraries trip over while a folder is opened: told shortly, and nothing else is printed."""

import json
import logging
import warnings
from pathlib import Path

import pytest
import transformers

from headwise.errors import ModelError
from headwise.models.opening import model_folder
from headwise.models.opening.opened_model import open_model

from ..folders import save, tiny_llama


@pytest.fixture
def llama(tmp_path, minilm) -> Path:
    return save(tiny_llama(), tmp_path / "llama", tokenizer_from=minilm.folder)


@pytest.fixture
def failing_tokenizer(llama, monkeypatch):
    """Have the tokenizer of a folder fail with a given error."""

    def fail_with(error: BaseException) -> Path:
        def fail(*arguments, **options):
            raise error

        monkeypatch.setattr(model_folder.AutoTokenizer, "from_pretrained", fail)
        return llama

    return fail_with


class PanicException(BaseException):
    """What a panic in the tokenizers library looks like: no Exception."""


@pytest.mark.parametrize(
    ("error", "match"),
    [
        (PanicException("the regex gave up"), r"llama cannot be opened: the regex gave up"),
        (KeyError(), r"llama cannot be opened: KeyError"),
        (ValueError("first\n\nsecond"), r"llama cannot be opened: first$"),
        (ValueError("x" * 5000), r"llama cannot be opened: x{300}$"),
        (MemoryError(), r"llama cannot be opened: it takes more memory than there is"),
    ],
)
def test_what_a_library_trips_over_is_told_shortly(failing_tokenizer, error, match):
    with pytest.raises(ModelError, match=match):
        open_model(failing_tokenizer(error))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_an_interruption_is_not_taken_for_a_fault_of_the_model(failing_tokenizer, error):
    with pytest.raises(type(error)):
        open_model(failing_tokenizer(error))


def test_libraries_are_silent_while_opening_and_get_their_voice_back(
    llama, capfd, failing_tokenizer, monkeypatch
):
    hub = logging.getLogger("huggingface_hub")
    monkeypatch.setattr(hub, "level", logging.INFO)
    transformers.logging.set_verbosity_info()
    before = (transformers.logging.get_verbosity(), hub.level, list(warnings.filters))
    transformers.logging.enable_progress_bar()
    open_model(llama)
    with pytest.raises(ModelError):
        open_model(failing_tokenizer(ValueError("no")))
    assert capfd.readouterr() == ("", "")
    assert (transformers.logging.get_verbosity(), hub.level, list(warnings.filters)) == before
    assert transformers.logging.is_progress_bar_enabled()
    transformers.logging.set_verbosity_warning()


def test_nothing_is_said_about_a_config_that_looks_odd_to_transformers(llama, said_by_transformers):
    config = json.loads((llama / "config.json").read_text())
    (llama / "config.json").write_text(json.dumps(config | {"bos_token_id": 50_256}))  # not in the vocabulary
    open_model(llama)
    assert said_by_transformers == []
