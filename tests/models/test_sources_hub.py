"""Hub ids: the local hub cache first; without it and without a network, one error."""

from pathlib import Path

import pytest
from published import write_folder
from tiny import BASE

from interp.errors import LoadError
from interp.models.loading import load

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def put_snapshot(hub_cache: Path, revision: str = "main") -> Path:
    """A model in the hub's cache, as a download would leave it."""
    repository = hub_cache / "models--someone--tiny"
    snapshot = repository / "snapshots" / COMMIT
    write_folder(snapshot, BASE)
    (repository / "refs").mkdir()
    (repository / "refs" / revision).write_text(COMMIT)
    return snapshot


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
