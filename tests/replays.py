"""The slow way to sweep, one forward pass after the other, against which every replay is held; and sweeps to try."""

import functools
from collections.abc import Mapping, Sequence

import torch
from tiny import BASE, random_tokens, tiny
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from interp import edits
from interp.cache import ActivationCache
from interp.hooks import HookFn, HookPoint, Hooks
from interp.models.replay import Metric, Replay, Sweep, Swept
from interp.models.transformer import Transformer


def one_logit(token: int, place: int = -1) -> Metric:
    """A logit at one of the columns that are read; without the checks of `interp.metrics`, which take longer."""
    return lambda logits: logits[:, place, token].to(torch.promote_types(logits.dtype, torch.float32))


PROBES: dict[str, Metric] = {f"logit of {token}": one_logit(token) for token in (3, 20, 41, 66)}
"""What is compared: some logits of the last column that is read."""


@functools.cache
def slowly(kind: str, hooks: str = "none") -> list[Tensor]:
    """Logits of every cell of one of the sweeps below, over some of the base hooks below."""
    return ends(MODEL, TOKENS, SWEEPS[kind], hooks=HOOKS[hooks])


def ends(
    model: Transformer,
    tokens: Tensor,
    sweep: Sweep,
    *,
    hooks: Hooks = (),
    mask: Tensor | None = None,
    read: Sequence[int] = (-1,),
) -> list[Tensor]:
    """Logits [batch, read, d_vocab] of every cell, by a forward pass each."""
    return [model.run_with_hooks(tokens, [*hooks, *cell], mask=mask)[:, list(read)] for cell in sweep.cells()]


def naive(logits: Sequence[Tensor], metric: Metric, shape: Sequence[int]) -> Tensor:
    """The metric of every cell, [*axes, batch]."""
    return torch.stack([metric(each) for each in logits]).view(*shape, -1).cpu()


def check(swept: Swept, logits: Sequence[Tensor], probes: Mapping[str, Metric], shape: Sequence[int], of: str) -> None:
    """All values lie within 1e-5 of the largest absolute logit (1e-12 in float64) of those of the slow way."""
    double = logits[0].dtype == torch.float64
    largest = max(float(each.abs().max()) for each in logits)
    for name, metric in probes.items():
        expected, found = naive(logits, metric, shape), torch.tensor(swept[name].values)
        assert found.dtype == expected.dtype, of
        off = (found - expected).abs()
        worst, where = float(off.max()), tuple(int(place) for place in (off == off.max()).nonzero()[0])
        assert worst <= (1e-12 if double else 1e-5) * largest, f"{of}, {name} at {where}: off by {worst} of {largest}"


def agree(model: Transformer, tokens: Tensor, sweep: Sweep, of: str = "sweep", **options: object) -> Replay:
    """Hold a sweep against the slow way, with shortcuts and without; the replay with shortcuts comes back."""
    plain = {key: value for key, value in options.items() if key in ("hooks", "mask", "read")}
    probes = options.pop("metric", PROBES)
    logits = ends(model, tokens, sweep, **plain)  # type: ignore[arg-type]
    replays = [Replay(model, tokens, sweep, probes, shortcuts=on, **options) for on in (True, False)]  # type: ignore[arg-type]
    for replay, how in zip(replays, ("with shortcuts", "without shortcuts"), strict=True):
        check(replay.run(), logits, replay.metrics, sweep.shape, f"{of} {how}")
    return replays[0]


def counted(replay: Replay) -> int:
    """Operations of a sweep, the base run's end left out, as PyTorch counts them; with its CPU kernel of attention."""

    def attention(query: Sequence[int], key: Sequence[int], *rest: object, **more: object) -> int:
        batch, head, query_pos, d_head = query
        return 4 * batch * head * query_pos * key[2] * d_head

    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    done = []
    for work in (replay.run, replay._unchanged):
        with FlopCounterMode(display=False, custom_mapping={kernel: attention}) as counter:
            work()
        done.append(counter.get_total_flops())
    return done[0] - done[1]


def at(cache: ActivationCache, name: str, position: int) -> Tensor:
    """A recorded value at one position, its axis kept."""
    return cache[name].narrow(cache.points[name].position_axis, position, 1)


def in_place(value: Tensor, point: HookPoint) -> None:
    """A function of somebody's own: it turns what stands at column 2 around."""
    value[:, 2] = -value[:, 2]


def looks(value: Tensor, point: HookPoint) -> None:
    """A function of somebody's own that changes nothing."""


def doubled(value: Tensor, point: HookPoint) -> Tensor:
    """A function of somebody's own whose column depends on all earlier ones."""
    return value + 0.5 * value.cumsum(1)


def some_sweeps(own: ActivationCache, other: ActivationCache) -> dict[str, Sweep]:
    """Sweeps of many kinds over a model of three layers and texts of seven columns, by what they do.

    `own` is the base run, `other` another one.
    """
    mixed = torch.cat([own["resid_pre", 1][:, :3], other["resid_pre", 1][:, 3:]], 1)
    direction = torch.randn(own["embed"].shape[-1], generator=torch.Generator().manual_seed(4)).to(own["embed"])

    def block(layer: int, rest: str, edit: HookFn) -> tuple[str, HookFn]:
        return (f"blocks.{layer}.{rest}", edit)

    def patch(name: str, pos: int) -> tuple[str, HookFn]:
        return (name, edits.replace(at(other, name, pos), positions=pos))

    def window(first: int, pos: int) -> Hooks:
        return [patch(f"blocks.{layer}.hook_resid_post", pos) for layer in range(first, min(first + 2, 3))]

    def several(layer: int, pos: int) -> Hooks:
        head = edits.zero(heads=[1, 4], positions=slice(pos, None))
        return [patch("hook_embed", pos), patch("blocks.1.hook_mlp_out", 2), block(layer, "attn.hook_z", head)]

    own_functions: list[HookFn] = [in_place, looks, doubled, edits.compose(edits.scale(0.7), in_place)]
    means = [["batch"], ["pos"], ["batch", "pos"]]
    return {
        "patches": Sweep(
            {"layer": range(3), "pos": range(7)}, lambda layer, pos: [patch(f"blocks.{layer}.hook_resid_pre", pos)]
        ),
        "windows": Sweep({"first": range(3), "pos": (0, 3, 6)}, window),
        "several points": Sweep({"layer": range(3), "pos": (1, 4)}, several),
        "heads": Sweep(
            {"layer": range(3), "head": range(6)},
            lambda layer, head: [block(layer, "attn.hook_z", edits.zero(heads=head))],
        ),
        "neurons": Sweep(
            {"neuron": (0, 17, 43), "layer": range(3)},
            lambda neuron, layer: [block(layer, "mlp.hook_post", edits.replace(0.8, neurons=[neuron, -2]))],
        ),
        "noise": Sweep({"seed": range(4)}, lambda seed: [("hook_embed", edits.add_noise(0.3, seed, positions=[2, 4]))]),
        "means": Sweep(
            {"axes": range(3), "layer": range(3)},
            lambda axes, layer: [block(layer, "attn.hook_z", edits.mean(means[axes], positions=slice(1, 5), heads=0))],
        ),
        "means of what was patched": Sweep(
            {"layer": range(3)},
            lambda layer: [patch("hook_embed", 4), block(layer, "hook_mlp_out", edits.mean("pos", positions=[2, 5]))],
        ),
        "steering": Sweep(
            {"layer": range(3), "strength": (-1, 2)},
            lambda layer, strength: [block(layer, "hook_resid_mid", edits.steer(direction, strength, positions=-2))],
        ),
        "own functions": Sweep(
            {"which": range(4), "layer": range(3)},
            lambda which, layer: [block(layer, "hook_mlp_out", own_functions[which])],
        ),
        "own functions behind the layers": Sweep(
            {"which": range(4), "point": ("ln_final.hook_normalized", "unembed.hook_out", "hook_embed")},
            lambda which, point: [(point, own_functions[which])],
        ),
        "patches whose first columns change nothing": Sweep(
            {"last": (4, 7)},
            lambda last: [block(1, "hook_resid_pre", edits.replace(mixed[:, :last], positions=slice(last)))],
        ),
        "knock-outs": Sweep(
            {"first": range(3), "key": range(4)},
            lambda first, key: [
                (
                    [f"blocks.{layer}.attn.hook_attn_scores" for layer in range(first, 3)],
                    edits.knock_out(keys=key, queries=[-1, 5]),
                )
            ],
        ),
        "one after the other at one point": Sweep(
            {"layer": range(3)},
            lambda layer: [
                block(layer, "hook_resid_post", edits.scale(1.2, positions=5)),
                patch(f"blocks.{layer}.hook_resid_post", 3),
                block(layer, "hook_resid_post", edits.steer(direction, positions=slice(2, None))),
            ],
        ),
        "nothing": Sweep({"on": (0, 1)}, lambda on: [patch("hook_embed", 3)] * on),
    }


MODEL = tiny()
TOKENS = random_tokens(BASE, 2, 7)
_, OTHER = MODEL.run_with_cache(random_tokens(BASE, 2, 7, seed=5), "*")
_, OWN = MODEL.run_with_cache(TOKENS)
SWEEPS = some_sweeps(OWN, OTHER)
PATCHES = SWEEPS["patches"]
LEFT = torch.tensor([[False] * 2 + [True] * 5, [True] * 7])
"""Real tokens of two texts of unequal length, padded on the left."""

FEW = (
    "windows",
    "several points",
    "means of what was patched",
    "own functions behind the layers",
    "one after the other at one point",
    "knock-outs",
    "noise",
)
"""Those of the sweeps that ask most, for tests that cannot afford all."""

HOOKS: dict[str, Hooks] = {
    "none": [],
    "one position": [("blocks.1.hook_resid_mid", edits.scale(1.5, positions=2))],
    "all positions": [("blocks.*.attn.hook_z", edits.scale(1.2, heads=3)), ("hook_embed", edits.scale(0.9))],
    "an own function": [("blocks.1.hook_mlp_out", doubled)],
    "an own function in place": [("blocks.0.attn.hook_v", in_place), ("blocks.2.hook_resid_post", looks)],
    "a mean over positions": [("blocks.1.attn.hook_out", edits.mean("pos", positions=slice(3, 6)))],
    "the final norm": [("ln_final.hook_normalized", edits.scale(1.4, positions=-1))],
    "an own function at the final norm": [("ln_final.hook_scale", doubled)],
    "a mean of the logits": [("unembed.hook_out", edits.mean("pos", positions=[4, 6]))],
    "scores": [("blocks.1.attn.hook_attn_scores", edits.knock_out(keys=3, queries=[4, 6]))],
    "a receiver": [("blocks.2.hook_k_input", edits.scale(1.5, heads=1))],
}
"""Hooks of a base run, by what they do."""
