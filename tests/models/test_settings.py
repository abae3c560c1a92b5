"""Where models are said to be: the environment, the file, what is given; and what is wrong is named, not quoted."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernellab.models import ModelError, ModelFault, ModelSettings, Price, configured, open_model
from kernellab.models.exchanges import Usage
from kernellab.records import Role

URL = "http://localhost:8000/v1"


def toml(text: str) -> None:
    Path("kernellab.toml").write_text(text)


def test_nothing_is_configured_by_default_and_the_sentence_says_how() -> None:
    with pytest.raises(ModelError, match=r"No endpoint.*KERNELLAB_MODEL_URL") as caught:
        open_model("model", Role.CODER)
    assert caught.value.kind is ModelFault.CONFIG
    assert [(row.role, row.ready) for row in configured()] == [
        (role, False) for role in (Role.DESIGNER, Role.CODER, Role.CONDUCTOR, Role.ANALYST)
    ]


def test_given_values_win_over_the_file_and_the_file_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELLAB_MODEL_URL", URL)
    monkeypatch.setenv("KERNELLAB_MODEL", "from-env")
    assert ModelSettings.load().model == "from-env"
    toml('[models]\nmodel = "from-file"\nstall_s = 7\n')
    assert ModelSettings.load().model == "from-file"
    settings = ModelSettings.load(model="given", base_url=None)
    assert (settings.model, settings.stall_s, settings.base_url) == ("given", 7, URL)


def test_each_role_may_have_a_model_an_address_and_a_key_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELLAB_MODEL_KEY", "common-key-1")
    monkeypatch.setenv("KERNELLAB_MODEL_DESIGNER", "thinker")
    monkeypatch.setenv("KERNELLAB_MODEL_URL_ANALYST", "http://elsewhere:1/v1")
    monkeypatch.setenv("KERNELLAB_MODEL_URL_CONDUCTOR", "http://third:1/v1")
    monkeypatch.setenv("KERNELLAB_MODEL_KEY_CONDUCTOR", "conductors-key")
    toml(f'[models]\nmodel = "common"\nbase_url = "{URL}"\n[models.roles.coder]\ntemperature = 0.1\n')
    settings = ModelSettings.load()
    found = {role: settings.endpoint(role) for role in (Role.DESIGNER, Role.CODER, Role.ANALYST, Role.CONDUCTOR)}
    assert found[Role.DESIGNER].model == "thinker" and found[Role.CODER].model == "common"
    assert found[Role.CODER].temperature == 0.1 and found[Role.DESIGNER].temperature is None
    assert found[Role.DESIGNER].key == "common-key-1"
    assert found[Role.ANALYST].host == "elsewhere:1"
    assert found[Role.ANALYST].key is None, "the common key stays with the common address"
    assert found[Role.CONDUCTOR].key == "conductors-key"


def test_the_spec_names_another_model() -> None:
    assert open_model("model:other", Role.CODER, ModelSettings.load(base_url=URL, model="m")).name == "other"


def test_openai_variables_are_the_last_resort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "openai-key-1")
    settings = ModelSettings.load(model="gpt")
    assert settings.endpoint(Role.CODER).host == "api.openai.com"
    assert settings.endpoint(Role.CODER).key == "openai-key-1"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://gateway:2/v1/")
    assert ModelSettings.load(model="gpt").endpoint(Role.CODER).host == "gateway:2"


def test_openai_key_does_not_follow_another_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "openai-key-1")
    assert ModelSettings.load(base_url=URL, model="m").endpoint(Role.CODER).key is None
    named = ModelSettings.load(base_url=URL, model="m", key_env="OPENAI_API_KEY")
    assert named.endpoint(Role.CODER).key == "openai-key-1"


def test_a_key_file_is_read_when_it_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "key"
    settings = ModelSettings.load(base_url=URL, model="m", key_file=path)
    with pytest.raises(ModelError, match=r"key file .* cannot be read: No such file"):
        settings.endpoint(Role.CODER)
    path.write_text("from-a-file-1\n")
    assert settings.endpoint(Role.CODER).key == "from-a-file-1"
    path.write_text("two\nlines\n")
    with pytest.raises(ModelError, match="should hold one line"):
        settings.endpoint(Role.CODER)


def test_who_names_a_key_file_replaces_the_variable_of_a_lower_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KERNELLAB_MODEL_KEY", "from-the-variable")
    (tmp_path / "key").write_text("from-a-file-1")
    settings = ModelSettings.load(base_url=URL, model="m", key_file=tmp_path / "key")
    assert settings.endpoint(Role.CODER).key == "from-a-file-1"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('api_key = "sk-very-secret-1"', "'api_key' is wrong: a key does not belong there"),
        ('key_env = "sk-very-secret-1"', "'key_env' is wrong: it should be the NAME"),
        ('key_env = "verysecret1secret"', "'key_env' is wrong: it should be the NAME"),
        ('base_url = "http://me:secret@host/v1"', "'base_url' is wrong: it may hold no user name"),
        ('base_url = "http://host/v1?key=secret"', "'base_url' is wrong: it may hold no user name"),
        ('base_url = "localhost:8000"', "'base_url' is wrong: it should be a web address"),
        ("concurrency = 0", "'concurrency' is wrong"),
        ('colour = "red"', "'colour' is wrong: no such setting"),
        ('[models.roles.verifier]\nmodel = "m"', "'roles' is wrong: the Verifier is never played by a model"),
        ('[models.roles.painter]\nmodel = "m"', "'roles.painter"),
        ("models = [", "cannot be read"),
    ],
)
def test_a_wrong_setting_is_named_and_not_quoted(text: str, sentence: str) -> None:
    toml(f"[models]\n{text}\n")
    with pytest.raises(ModelError) as caught:
        ModelSettings.load()
    assert sentence in str(caught.value) and "kernellab.toml" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert not any(row.ready for row in configured()), "doctor shows it and does not fail"


def test_the_file_is_looked_for_in_parent_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    toml('[models]\nmodel = "above"\n')
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "er")
    assert ModelSettings.load().model == "above"
    assert ModelSettings.load(tmp_path / "deep").model is None, "a workspace that is named is not left"


def test_doctor_says_ready_with_the_host_and_without_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELLAB_MODEL_URL", "https://models.example.org/v1")
    monkeypatch.setenv("KERNELLAB_MODEL", "big")
    row = configured()[0]
    assert (row.role, row.model, row.host, row.ready, row.reason) == (
        Role.DESIGNER, "big", "models.example.org", True, "",
    )  # fmt: skip
    toml('[models]\nkey_env = "NOT_SET_ANYWHERE"\n')
    assert "NOT_SET_ANYWHERE" in configured()[0].reason and not configured()[0].ready


@pytest.mark.parametrize("spec", ["gpt", "", "model:", "replay:", "replay", "human"])
def test_a_word_that_is_no_model_is_refused(spec: str) -> None:
    with pytest.raises(ModelError, match="is not a chat model"):
        open_model(spec, Role.CODER, ModelSettings.load(base_url=URL, model="m"))


def test_prices_are_by_name_then_by_pattern_and_count_cached_tokens_apart() -> None:
    settings = ModelSettings(prices={"big-*": Price(input=9, output=9), "big-1": Price(input=2, output=10, cached=0.5)})
    price = settings.price("big-1")
    assert price is not None
    usage = Usage(input_tokens=1_000_000, cached_tokens=400_000, output_tokens=100_000)
    assert price.of(usage) == pytest.approx(0.6 * 2 + 0.4 * 0.5 + 0.1 * 10)
    assert settings.price("big-2") == Price(input=9, output=9)
    assert settings.price("small") is None
