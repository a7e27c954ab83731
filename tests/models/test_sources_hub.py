"""Hub ids: the local hub cache first; without it and without a network, one error."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny import BASE, reference, tiny

from interp.apps.cli import main
from interp.apps.model_facts import origin_facts
from interp.errors import LoadError, UsageError
from interp.models.description import describe
from interp.models.loading import load, read_config
from interp.models.transformer import Transformer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
EARLY = "89abcdef0123456789abcdef0123456789abcdef"


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def put_snapshot(hub_cache: Path, revision: str = "main", commit: str = COMMIT, seed: int = 0) -> Path:
    """A model in the hub's cache, as a download would leave it."""
    repository = hub_cache / "models--someone--tiny"
    snapshot = repository / "snapshots" / commit
    reference(tiny(BASE, seed=seed)).save_pretrained(snapshot)
    (repository / "refs").mkdir(exist_ok=True)
    (repository / "refs" / revision).write_text(commit)
    return snapshot


@pytest.fixture
def trained(hub_cache: Path) -> dict[str, Transformer]:
    """The models of which an early step of the training is kept beside the last, as Pythia's are, by revision."""
    put_snapshot(hub_cache)
    put_snapshot(hub_cache, "step1000", EARLY, seed=1)
    return {"main": tiny(BASE), "step1000": tiny(BASE, seed=1)}


@pytest.mark.parametrize("revision", [None, "main", COMMIT])
def test_a_cached_model_needs_no_network(revision: str | None, hub_cache: Path) -> None:
    put_snapshot(hub_cache)
    model = load("someone/tiny", device="cpu", revision=revision)
    assert model.config == BASE
    assert model.provenance["source"] == f"someone/tiny@{COMMIT}", "the commit, not the branch, says which weights"
    assert model.provenance["model"] == "someone/tiny"


def test_another_revision_is_not_taken_from_the_cache(hub_cache: Path) -> None:
    put_snapshot(hub_cache)
    with pytest.raises(LoadError, match="someone/tiny at v2 is not in the local Hugging Face cache"):
        load("someone/tiny", device="cpu", revision="v2")


@pytest.mark.parametrize(("revision", "commit"), [("main", COMMIT), ("step1000", EARLY)])
def test_each_revision_has_its_own_weights_and_is_named(
    revision: str, commit: str, trained: dict[str, Transformer]
) -> None:
    model = load("someone/tiny", device="cpu", revision=revision)
    for name, weight in trained[revision].weights().items():
        assert model.weights()[name].equal(weight), name
    stated = model.provenance
    assert (stated["model"], stated["revision"]) == ("someone/tiny", revision)
    assert stated["source"] == f"someone/tiny@{commit}"
    assert ("Revision", revision) in origin_facts(model)


def test_without_a_revision_the_main_branch_is_loaded_and_none_is_named(trained: dict[str, Transformer]) -> None:
    model = load("someone/tiny", device="cpu")
    assert model.weights()["embed.W_E"].equal(trained["main"].weights()["embed.W_E"])
    assert "revision" not in model.provenance


@pytest.mark.usefixtures("trained")
def test_revisions_differ_by_their_hash() -> None:
    early, last = (load("someone/tiny", device="cpu", revision=name) for name in ("step1000", "main"))
    assert not early.weights()["embed.W_E"].equal(last.weights()["embed.W_E"])
    assert early.provenance["weights_sha256"] != last.provenance["weights_sha256"]
    assert describe("someone/tiny", revision="step1000").weights_sha256 == early.provenance["weights_sha256"]


@pytest.mark.usefixtures("trained")
def test_a_revision_that_is_missing_is_named_by_the_error() -> None:
    with pytest.raises(LoadError, match="someone/tiny at step2000 is not in the local Hugging Face cache"):
        load("someone/tiny", device="cpu", revision="step2000")


@pytest.mark.parametrize("read", [load, read_config, describe])
@pytest.mark.parametrize("name", ["gpt2", "smollm2-135m"])
def test_a_revision_of_what_has_none_is_refused(name: str, read: Callable[..., object]) -> None:
    with pytest.raises(UsageError, match=rf"A revision \('v2'\) only means something for a hub id .* not for '{name}'"):
        read(name, revision="v2")


@pytest.mark.usefixtures("trained")
@pytest.mark.parametrize("command", ["show", "verify"])
def test_commands_describe_and_verify_the_revision_they_are_told(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERP_CACHE", str(tmp_path / "cache"))
    early = load("someone/tiny", device="cpu", revision="step1000").provenance["weights_sha256"]
    assert main(["models", command, "someone/tiny", "--revision", "step1000", "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["weights_sha256"] == early


@pytest.mark.usefixtures("trained")
@pytest.mark.parametrize(
    "words",
    ["models show someone/tiny", "models verify someone/tiny", "points -m someone/tiny", "lens -m someone/tiny x"],
)
def test_every_command_looks_for_the_revision_it_is_told(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words.split(), "--revision", "step2000", "-q"]) == 4
    assert "someone/tiny at step2000 is not in the local Hugging Face cache" in capsys.readouterr().err


def test_an_incomplete_snapshot_is_not_enough(hub_cache: Path) -> None:
    (put_snapshot(hub_cache) / "model.safetensors").unlink()
    with pytest.raises(LoadError, match=r"no complete safetensors weights .* without a network.*save_pretrained"):
        load("someone/tiny", device="cpu")


def test_without_a_network_one_error_says_what_to_do(hub_cache: Path) -> None:
    with pytest.raises(LoadError, match=r"someone/absent is not in the local .*download its config\.json, safetensors"):
        load("someone/absent", device="cpu")


@pytest.mark.parametrize("reason", ["Name or service not known", "The repository is gone.", ""])
def test_the_reason_ends_before_the_advice_begins(
    reason: str, hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object, **__: object) -> str:
        raise OSError(reason)

    monkeypatch.setattr("interp.models.sources.hub.snapshot_download", unreachable)
    with pytest.raises(LoadError, match=rf"fetched: {reason.rstrip('.') or 'OSError'}\. To provide it by hand"):
        load("someone/absent", device="cpu")


def test_a_name_that_cannot_be_a_repository_is_a_load_error(hub_cache: Path) -> None:
    with pytest.raises(LoadError, match="could not be fetched"):
        load("some..one/tiny--x", device="cpu")
