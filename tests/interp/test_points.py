"""The registry of hook points is what models do: names, shapes, order, and clear words for what does not exist."""

import pytest
import torch
from tiny import BASE, CONFIGS, random_tokens, tiny

from interp.errors import PointError
from interp.hooks import HookPoint
from interp.points import REGISTRY, markdown_table


def visited(
    model: torch.nn.Module, tokens: torch.Tensor, mask: torch.Tensor | None = None
) -> list[tuple[str, tuple[int, ...]]]:
    """(name, shape) of every point that fires, in order."""
    seen: list[tuple[str, tuple[int, ...]]] = []

    def look(value: torch.Tensor, point: HookPoint) -> None:
        seen.append((point.name, tuple(value.shape)))

    with model.hooks([("*", look)]):
        model(tokens, mask)
    return seen


@pytest.mark.parametrize("name", CONFIGS)
def test_every_listed_point_fires_once_with_the_promised_shape(name: str) -> None:
    model = tiny(CONFIGS[name])
    points = model.points()
    seen = visited(model, random_tokens(model.config, 2, 5))
    promised = {name: point.shape({**points.sizes, "batch": 2, "pos": 5}) for name, point in points.items()}
    assert dict(seen) == promised
    assert len(seen) == len(promised), "once each"


def test_points_are_listed_in_firing_order() -> None:
    model = tiny()
    seen = [name for name, _ in visited(model, random_tokens(BASE, 1, 4))]
    received = {name for name in seen if name.endswith("_input")}
    assert [name for name in seen if name not in received] == [name for name in model.points() if name not in received]


def test_names_that_resolve() -> None:
    points = tiny().points()
    assert points.resolve("blocks.1.attn.hook_q") == ["blocks.1.attn.hook_q"]
    assert points.resolve("blocks.*.hook_resid_pre") == [f"blocks.{layer}.hook_resid_pre" for layer in range(3)]
    assert points.resolve(["blocks.2.mlp.hook_post", "hook_embed", "embed"]) == ["hook_embed", "blocks.2.mlp.hook_post"]
    assert points.resolve(lambda name: name.endswith("hook_scale"))[-1] == "ln_final.hook_scale"
    assert len(points.resolve("*")) == len(points)
    on_demand = {name for name, point in points.items() if point.on_demand}
    assert set(points.resolve(None)) == set(points) - on_demand


def test_short_names_mean_one_point_each() -> None:
    points = tiny().points()
    for name, point in points.items():
        layer = int(name.split(".")[1]) if point.per_layer else None
        assert points.full_name(point.short if layer is None else (point.short, layer)) == name
    assert points.full_name(("pattern", -1)) == "blocks.2.attn.hook_pattern"
    assert points.full_name(("attn_out", 0)) == "blocks.0.hook_attn_out"
    assert points.full_name(("hook_resid_post", 1)) == "blocks.1.hook_resid_post"


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ("blocks.0.attn.hook_patern", "blocks.0.attn.hook_pattern"),
        (["hook_embed", "blocks.1.hook_resid_prr"], "blocks.1.hook_resid_pre"),
        ("blocks.*.attn.hook_patern", "Did you mean"),
        ("blocks.3.hook_resid_pre", "layers 0 to 2"),
        ("hook_pos_embed", "positions act on queries and keys"),
        ("blocks.0.mlp.hook_router", "without router"),
        ("blocks.*.ln1_post.hook_scale", "does not normalise"),
        ("pattern", "blocks.*.attn.hook_pattern"),
        ([], "empty"),
        (lambda name: False, "chose no hook point"),
        (["hook_embed", lambda name: False], "chose no hook point"),
        (5, "not by 5"),
        ([5], "not by 5"),
    ],
)
def test_names_that_match_nothing_are_refused_with_a_way_on(names: object, says: str) -> None:
    model = tiny()
    with pytest.raises(PointError, match=says.replace("*", r"\*")):
        model.run_with_cache(random_tokens(BASE, 1, 3), names)
    with pytest.raises(PointError), model.hooks([(names, lambda value, point: None)]):
        pass


@pytest.mark.parametrize(
    ("key", "says"),
    [
        (("pattern", 3), "0 to 2"),
        (("patern", 0), "pattern"),
        (("router", 0), "router"),
        (("embed", 0), "has no layers"),
        (("scale", 0), "'ln1.scale'"),
        (5, "not by 5"),
    ],
)
def test_short_names_that_mean_nothing_are_refused(key: tuple[str, int], says: str) -> None:
    with pytest.raises(PointError, match=says):
        tiny().points().full_name(key)


def test_predicates_and_names_mix_in_a_list() -> None:
    points = tiny().points()
    assert points.resolve([lambda name: name.endswith("ln_final.hook_scale"), "embed"]) == [
        "hook_embed",
        "ln_final.hook_scale",
    ]


def test_the_table_shows_itself_with_shapes() -> None:
    points = tiny().points()
    assert "batch pos kv_head=2 d_head=10" in repr(points)
    assert "kv_head=2" in points._repr_html_()
    assert points.get("hook_embd") is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_bytes_are_known_in_every_dtype(dtype: torch.dtype) -> None:
    model = tiny(dtype=dtype)
    _, cache = model.run_with_cache(random_tokens(BASE, 2, 7), "*")
    assert cache.nbytes == model.cache_bytes(2, 7, "*")


def test_bytes_are_known_before_a_run_and_equal_what_is_recorded() -> None:
    model = tiny()
    tokens = random_tokens(BASE, 2, 7)
    for names, positions in ((None, None), ("*", None), ("blocks.*.attn.hook_pattern", [0, -1]), ("*", slice(2, 5))):
        _, cache = model.run_with_cache(tokens, names, positions=positions)
        assert cache.nbytes == model.cache_bytes(2, 7, names, positions=positions)


def test_the_table_of_points_names_every_point_once() -> None:
    table = markdown_table()
    assert all(table.count(f"{point.name}`") == 1 for point in REGISTRY if "." not in point.name)
    assert len(table.splitlines()) == len(REGISTRY) + 2
