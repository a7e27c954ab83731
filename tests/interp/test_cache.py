"""A cache holds what the model used, is never rewritten, and takes the residual stream apart exactly."""

from pathlib import Path

import pytest
import torch
from tiny import BASE, CONFIGS, random_tokens, tiny

from interp import edits
from interp.cache import ActivationCache
from interp.errors import BudgetError, HookError, LoadError, PointError, UsageError

TOKENS = random_tokens(BASE, 2, 6)


@pytest.mark.parametrize("positions", [-1, 0, [1, 4], [-2, 0], slice(1, None, 2)])
def test_positions_are_kept_on_each_points_own_axis(positions: int | list[int] | slice) -> None:
    model = tiny()
    _, whole = model.run_with_cache(TOKENS, "*")
    _, part = model.run_with_cache(TOKENS, "*", positions=positions)
    kept = list(range(6))[positions] if isinstance(positions, slice) else positions
    for name, point in model.points().items():
        index = torch.as_tensor(kept).reshape(-1) % 6
        assert torch.equal(part[name], whole[name].index_select(point.position_axis, index)), name


@pytest.mark.parametrize("positions", [6, -7, [0, 6], [], slice(6, 9)])
def test_positions_outside_are_refused(positions: int | list[int] | slice) -> None:
    with pytest.raises(UsageError, match="0 to 5"):
        tiny().run_with_cache(TOKENS, "hook_embed", positions=positions)


@pytest.mark.parametrize("positions", [torch.tensor([True, False]), [True], 1.7, "1", [0.5]])
def test_positions_that_are_no_indices_are_refused(positions: object) -> None:
    with pytest.raises(UsageError, match="list of indices"):
        tiny().run_with_cache(TOKENS, "hook_embed", positions=positions)


def test_the_callers_tokens_and_mask_are_not_shared() -> None:
    tokens, mask = TOKENS.clone(), torch.ones(2, 6, dtype=torch.bool)
    _, cache = tiny().run_with_cache(tokens, "hook_embed", mask=mask)
    tokens.zero_()
    mask.zero_()
    assert torch.equal(cache.tokens, TOKENS)
    assert cache.mask is not None
    assert cache.mask.all()


def test_a_cache_is_a_mapping() -> None:
    _, cache = tiny().run_with_cache(TOKENS, ["hook_embed", "blocks.*.attn.hook_pattern"])
    assert ("pattern", 0) in cache
    assert "embed" in cache
    assert "nope" not in cache
    assert ("z", 0) not in cache
    assert cache.get("nope") is None
    assert torch.equal(cache.get(("pattern", -1)), cache["pattern", 2])


@pytest.mark.parametrize("layer", [4, -4])
def test_residuals_of_layers_outside_are_refused(layer: int) -> None:
    _, cache = tiny().run_with_cache(TOKENS)
    with pytest.raises(UsageError, match="0 to 2"):
        cache.residual_parts(layer=layer)
    with pytest.raises(UsageError, match="no layers to stack"):
        cache.stack("z", [])


@pytest.mark.parametrize("name", ["relu", "gelu_exact"])
def test_gradients_work_with_every_activation(name: str) -> None:
    model = tiny(CONFIGS[name])
    _, cache = model.run_with_cache(
        TOKENS, "blocks.0.hook_resid_pre", gradients_of=lambda logits: logits[:, -1, 0].sum()
    )
    assert cache.gradients is not None
    assert cache.gradients["resid_pre", 0].abs().max() > 0


@pytest.mark.parametrize(
    "metric", [lambda logits: 3.0, lambda logits: logits.detach().sum(), lambda logits: logits.argmax()]
)
def test_metrics_without_a_gradient_are_refused(metric: object) -> None:
    with pytest.raises(UsageError, match="one number"):
        tiny().run_with_cache(TOKENS, "hook_embed", gradients_of=metric)


def test_a_later_edit_never_rewrites_a_cache() -> None:
    """Neighbouring points share one tensor; an edit in place at the second leaves the first as it was."""
    model = tiny()
    _, plain = model.run_with_cache(TOKENS)

    def in_place(value: torch.Tensor, point: object) -> None:
        value.zero_()

    with model.hooks([("blocks.1.hook_resid_pre", in_place)]):
        logits, cache = model.run_with_cache(TOKENS)
    assert torch.equal(cache["resid_post", 0], plain["resid_post", 0])
    assert cache["resid_pre", 1].abs().max() == 0
    sums = {name: value.double().sum().item() for name, value in cache.items()}
    model.run_with_hooks(TOKENS, [(["*hook_resid_*", "*hook_z", "*hook_post"], in_place)])
    model.run_with_cache(TOKENS)
    assert {name: value.double().sum().item() for name, value in cache.items()} == pytest.approx(
        sums, nan_ok=True, abs=0
    )
    assert torch.equal(logits, cache["unembed.hook_out"])


def test_a_run_stops_where_it_is_told() -> None:
    model, seen = tiny(), []
    _, whole = model.run_with_cache(TOKENS)
    with model.hooks([("*", lambda value, point: seen.append(point.name))]):
        logits, cache = model.run_with_cache(TOKENS, stop_at_layer=-1)
    assert logits is None
    assert seen[-1] == "blocks.1.hook_resid_post"
    torch.testing.assert_close(cache["resid_post", 1], whole["resid_post", 1], rtol=0, atol=1e-4)
    with pytest.raises(PointError, match="cannot fire"):
        model.run_with_cache(TOKENS, ["blocks.2.hook_resid_pre", "hook_embed"], stop_at_layer=2)
    with pytest.raises(UsageError, match="cannot stop at layer 4"):
        model.run_with_cache(TOKENS, stop_at_layer=4)


def test_what_was_not_recorded_is_refused_by_name() -> None:
    _, cache = tiny().run_with_cache(TOKENS, "blocks.*.hook_resid_post")
    with pytest.raises(PointError, match="not recorded.*hook_resid_post"):
        cache["pattern", 0]


@pytest.mark.parametrize("by", ["sublayer", "head", "neuron"])
@pytest.mark.parametrize("layer", [None, 0, 2, -1])
@pytest.mark.parametrize("name", ["grouped_query", "biases", "gelu_one_layer"])
def test_the_residual_stream_is_the_sum_of_its_parts(name: str, layer: int | None, by: str) -> None:
    model = tiny(CONFIGS[name])
    if layer is not None and abs(layer) >= model.config.n_layers:
        layer = 0
    _, cache = model.run_with_cache(random_tokens(model.config, 2, 5))
    parts = cache.residual_parts(by, layer=layer)
    stream = cache["resid_post", -1] if layer is None else cache["resid_pre", layer]
    assert len(parts.labels) == len(set(parts.labels)) == len(parts.values)
    torch.testing.assert_close(parts.values.sum(0), stream, rtol=0, atol=1e-5 * float(stream.abs().max()))


FLOATING = [name for name in tiny().points() if ".1." in name or "blocks" not in name]
RECEIVERS = [name for name in FLOATING if name.endswith(("q_input", "k_input", "v_input"))]


@pytest.mark.parametrize(
    "names", [[name for name in FLOATING if name not in RECEIVERS], RECEIVERS], ids=["shared", "receivers"]
)
def test_gradients_are_those_of_finite_differences(names: list[str]) -> None:
    """A small step along each recorded gradient raises the metric by its length times the step, at every point."""
    model = tiny()
    tokens = random_tokens(BASE, 1, 5)

    def metric(logits: torch.Tensor) -> torch.Tensor:
        return logits[0, -1, 3] - logits[0, -1, 5]

    logits, cache = model.run_with_cache(tokens, names, gradients_of=metric)
    assert cache.gradients is not None
    assert set(cache.gradients) == set(names)
    assert not logits.requires_grad
    for name in names:
        length = cache.gradients[name].norm()
        step = 0.02 * cache.gradients[name] / length
        predicted = 0.02 * length
        up = metric(model.run_with_hooks(tokens, [(name, edits.steer(step))]))
        down = metric(model.run_with_hooks(tokens, [(name, edits.steer(-step))]))
        assert ((up - down) / 2).item() == pytest.approx(predicted.item(), rel=0.02), name


def test_gradients_of_a_norm_that_its_readers_bypass_are_refused() -> None:
    """Never a silent zero: with receivers differentiated, the shared norm is off the path."""
    with pytest.raises(HookError, match="Use one of the two"):
        tiny().run_with_cache(TOKENS, "*", gradients_of=lambda logits: logits.sum())


def test_gradients_respect_positions_and_inference_mode() -> None:
    model = tiny()
    with torch.inference_mode():
        _, cache = model.run_with_cache(
            TOKENS, "blocks.*.hook_resid_pre", positions=[-1], gradients_of=lambda logits: logits[:, -1].sum()
        )
    assert cache.gradients is not None
    assert cache.gradients["resid_pre", 1].shape == cache["resid_pre", 1].shape == (2, 1, BASE.d_model)
    with pytest.raises(UsageError, match="one number"):
        model.run_with_cache(TOKENS, gradients_of=lambda logits: logits)
    with pytest.raises(UsageError, match="stops at a layer"):
        model.run_with_cache(TOKENS, gradients_of=lambda logits: logits.sum(), stop_at_layer=1)  # type: ignore[call-overload]


def test_a_budget_is_kept_or_the_run_refused_with_the_figure() -> None:
    model = tiny()
    needed = model.cache_bytes(2, 6)
    model.run_with_cache(TOKENS, budget=needed)
    with pytest.raises(BudgetError, match=f"{needed:,} bytes"):
        model.run_with_cache(TOKENS, budget=needed - 1)


@pytest.mark.parametrize("wanted", [None, "cpu", "meta"])
def test_caches_can_be_kept_on_another_device_and_in_another_dtype(wanted: str | None) -> None:
    model = tiny()
    _, cache = model.run_with_cache(TOKENS, "blocks.*.hook_resid_post", device=wanted)
    assert cache["resid_post", 0].device.type == (wanted or "cpu")
    half = cache.to(dtype=torch.bfloat16)
    assert half["resid_post", 0].dtype == torch.bfloat16
    assert cache["resid_post", 0].dtype == torch.float32


def test_a_slice_of_a_larger_tensor_does_not_keep_the_whole_alive() -> None:
    _, cache = tiny().run_with_cache(TOKENS, ["blocks.*.attn.hook_q", "blocks.*.mlp.hook_pre", "blocks.*.hook_q_input"])
    for value in cache.values():
        assert value.untyped_storage().nbytes() <= value.nbytes


def test_stacking_goes_over_layers_in_order() -> None:
    _, cache = tiny().run_with_cache(TOKENS)
    assert torch.equal(cache.stack("pattern")[1], cache["pattern", 1])
    assert torch.equal(cache.stack("z", [2, 0])[1], cache["z", 0])


def test_saving_and_loading_gives_the_same_bits(tmp_path: Path) -> None:
    model = tiny()
    mask = torch.ones(2, 6, dtype=torch.bool)
    _, cache = model.run_with_cache(TOKENS, positions=[1, -1], mask=mask, gradients_of=lambda logits: logits.sum())
    cache.save(tmp_path / "run.safetensors")
    loaded = ActivationCache.load(tmp_path / "run.safetensors", model=model)
    assert list(loaded) == list(cache)
    assert all(torch.equal(loaded[name], cache[name]) for name in cache)
    assert loaded.gradients is not None
    assert all(torch.equal(loaded.gradients[name], cache.gradients[name]) for name in cache)
    assert torch.equal(loaded.tokens, TOKENS)
    assert loaded.positions == [1, 5]
    assert torch.equal(loaded.residual_parts("head").values, cache.residual_parts("head").values)
    assert [path.name for path in tmp_path.iterdir()] == ["run.safetensors"]


def test_files_that_are_no_caches_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    (tmp_path / "text").write_text("not tensors")
    save_file({"a": torch.zeros(1)}, tmp_path / "other")
    for name in ("text", "other", "absent"):
        with pytest.raises(LoadError, match=name):
            ActivationCache.load(tmp_path / name)


def test_damaged_headers_and_other_models_are_refused(tmp_path: Path) -> None:
    import json

    from safetensors.torch import save_file

    for index, header in enumerate(([], {"format": "interp-cache-1"})):
        save_file({"a": torch.zeros(1)}, tmp_path / str(index), metadata={"interp": json.dumps(header)})
        with pytest.raises(LoadError, match=str(tmp_path)):
            ActivationCache.load(tmp_path / str(index))
    _, cache = tiny().run_with_cache(TOKENS)
    cache.save(tmp_path / "cache")
    with pytest.raises(LoadError, match="pass that model"):
        ActivationCache.load(tmp_path / "cache", model=tiny(CONFIGS["gelu_one_layer"]))


def test_a_cache_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    _, cache = tiny().run_with_cache(TOKENS, "hook_embed")
    (tmp_path / "folder").mkdir()
    for target in (tmp_path / "folder", tmp_path / "missing" / "cache"):
        with pytest.raises(UsageError, match="cannot be written"):
            cache.save(target)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_notebooks_show_a_table() -> None:
    _, cache = tiny().run_with_cache(TOKENS)
    shown = cache._repr_html_()
    assert "hook_resid_post" in shown
    assert "2 × 6 × 30" in shown
