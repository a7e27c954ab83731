"""What `interp plan` shows of models: side by side, a column each; and saves: a row each."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from interp.apps.cli.options import Common
from interp.apps.cli.output import show, staged, table, write_json, write_message
from interp.apps.model_facts import size

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType

    from interp.models.planner import ModelPlan

Rows = list[tuple[str, ...]]
NONE = "–"


def show_plans(plans: "Sequence[ModelPlan]", assumed: Mapping[str, int], depth_width: bool, common: Common) -> None:
    """Save the plans if --out was given, then print them."""
    notes = [*_assumed(assumed), *_notes(plans)]
    saved = [] if common.out is None else _save(plans, common.out)
    if common.as_json:
        write_json(_document(plans, depth_width, notes, saved))
        return
    parts: list[RenderableType] = [table(["", *(f"{plan.name}>" for plan in plans)], _rows(plans))]
    for plan in plans if depth_width else ():
        parts += ["", _depth_table(plan)]
    show(*parts, *(f"\n{note}" for note in notes))
    if saved and not common.quiet:
        write_message(f"Saved {', '.join(map(str, saved))}")


def _rows(plans: "Sequence[ModelPlan]") -> Rows:
    """What is counted, a row a quantity; rows of which no model has anything are left out."""
    columns = [_column(plan) for plan in plans]
    names: list[str] = []
    for column in columns:  # what only some have stands where these have it
        place = 0
        for name in column:
            if name not in names:
                names.insert(place, name)
            place = names.index(name) + 1
    rows = [(name, *(column.get(name, NONE) for column in columns)) for name in names]
    return [row for row in rows if set(row[1:]) != {NONE}]


def _column(plan: "ModelPlan") -> dict[str, str]:
    """One model's figures by the name of their row."""
    config, counted, flops = plan.config, plan.parameters, plan.flops
    return {
        "layers × width": f"{config.n_layers} × {config.d_model:,}",
        "heads / KV heads × width": f"{config.n_heads} / {config.n_kv_heads} × {config.d_head}",
        "parameters": f"{counted.total:,}",
        **{f"  {name}": f"{count:,}" if count else NONE for name, count in counted.stored.items()},
        "active for a token": f"{counted.total_active:,}" if config.moe else NONE,
        f"weights, {plan.dtype}": size(plan.serving.weights),
        "MFLOP a token, attention apart": f"{flops.without_attention / 1e6:,.1f}",
        f"  writing, at {plan.context:,} tokens": f"{flops.decode(plan.context) / 1e6:,.1f}",
        f"  reading {plan.context:,} tokens": f"{flops.prefill(plan.context) / plan.context / 1e6:,.1f}",
        **_kv(plan),
        **_serving(plan),
        "FLOP a byte: writing": f"{plan.decode.intensity:,.1f}",
        "FLOP a byte: reading": f"{plan.prefill.intensity:,.1f}",
        **_on(plan),
    }


def _kv(plan: "ModelPlan") -> dict[str, str]:
    """Keys and values: of a token and of a context, as they are and with heads shared otherwise."""
    own = next(each for each in plan.sharing if each.kv_heads == plan.config.n_kv_heads)
    less = plan.kv_bytes_needed != plan.kv_bytes
    column = {
        "KV bytes a token": f"{own.kv_bytes_per_token:,}",
        f"KV of {plan.context:,} tokens": f"{plan.kv_bytes:,} ({size(plan.kv_bytes)})",
        "  if windows dropped the rest": size(plan.kv_bytes_needed) if less else NONE,
    }
    for each in plan.sharing:
        mark = " (as it is)" if each is own else ""
        column[f"  a token as {each.name}"] = f"{each.kv_bytes_per_token:,}, {each.saved:.0%} saved{mark}"
    return column


def _serving(plan: "ModelPlan") -> dict[str, str]:
    needed = plan.serving
    users = f"{plan.users:,} user{'s' * (plan.users != 1)}"
    return {
        f"memory for {users}": size(needed.total),
        "  weights + KV + workspace": " + ".join(map(size, (needed.weights, needed.kv, needed.workspace))),
    }


def _on(plan: "ModelPlan") -> dict[str, str]:
    """What an accelerator makes of it."""
    speed = plan.speed
    if speed is None or plan.on is None:
        return {}
    steps = {"writing": plan.decode, "reading": plan.prefill}
    return {
        f"on {speed.name}: ridge, FLOP a byte": f"{speed.ridge:,.1f}",
        **{
            f"  {name}: bound by, time": f"{step.bound(speed)}, {1e3 * step.seconds(speed):,.1f} ms"
            for name, step in steps.items()
        },
        "  users that fit": f"{plan.users_that_fit:,}",
    }


def _depth_table(plan: "ModelPlan") -> "RenderableType":
    from interp.models.planner import depth_width

    rows = [
        (
            f"{each.config.n_layers}{' *' if each.config == plan.config else ''}",
            f"{each.config.d_model:,}",
            f"{each.config.n_heads} / {each.config.n_kv_heads}",
            f"{each.config.d_mlp if each.config.moe is None else each.config.moe.d_expert:,}",
            f"{each.non_embedding:,}",
            f"{each.total:,}",
            f"{each.kv_bytes_per_token:,}",
            f"{each.flops_per_token / 1e6:,.1f}",
            f"{each.steps}",
        )
        for each in depth_width(plan.config, plan.itemsize)
    ]
    heads = ["layers>", "width>", "heads / KV>", "FFN>", "without embeddings>", "parameters>", "KV bytes a token>"]
    title = f"{plan.name}: equal parameters, from wide to deep (* as it is)"
    return table([*heads, "MFLOP a token>", "steps in a row>"], rows, title)


def _document(
    plans: "Sequence[ModelPlan]", depth_width: bool, notes: Sequence[str], saved: "Sequence[Path]"
) -> dict[str, object]:
    from dataclasses import asdict

    from interp.models.planner import depth_width as shapes

    document: dict[str, object] = {"kind": "plan", "plans": [plan.to_dict() for plan in plans], "notes": notes}
    if depth_width:
        document["depth_width"] = {
            plan.name: [
                {**asdict(each), "config": each.config.to_dict()} for each in shapes(plan.config, plan.itemsize)
            ]
            for plan in plans
        }
    return {**document, "saved": saved}


def _save(plans: "Sequence[ModelPlan]", out: "Path") -> "list[Path]":
    """`out/plan.csv`, `.parquet` (the table), `.json` (everything) and `.html` (the figure): all or none."""
    import json

    from interp.apps.cli.output import plain
    from interp.models.planner import plans_figure, plans_frame

    names = ["plan.csv", "plan.parquet", "plan.json", "plan.html"]
    with staged(out) as stage:
        frame = plans_frame(plans)
        frame.to_csv(stage / "plan.csv", index=False)
        frame.to_parquet(stage / "plan.parquet", index=False)
        text = json.dumps(plain({"plans": [plan.to_dict() for plan in plans]}), ensure_ascii=False, indent=2)
        (stage / "plan.json").write_text(text + "\n", encoding="utf-8")
        figure = plans_figure(plans)
        figure.write_html(stage / "plan.html", include_plotlyjs=True, config={"displaylogo": False})
    return [out / name for name in names]


def _assumed(assumed: Mapping[str, int]) -> list[str]:
    if not assumed:
        return []
    said = ", ".join(f"--{name.replace('_', '-')} {value}" for name, value in assumed.items())
    return [f"Assumed, since not given: {said}; gated FFNs, an unembedding of its own, no biases."]


def _notes(plans: "Sequence[ModelPlan]") -> list[str]:
    """What figures do not say by themselves."""
    notes = [
        f"{plan.context:,} tokens are more than the context of {plan.config.n_ctx:,} that {plan.name} states."
        for plan in plans
        if plan.context > plan.config.n_ctx
    ]
    if any(plan.kv_bytes_needed != plan.kv_bytes for plan in plans):
        notes.append("The cache of this package keeps all tokens, also in layers that see a window of them.")
    if any(plan.on is not None for plan in plans):
        share = plans[0].efficiency
        notes.append(f"Reaching {share:.0%} of the published peak is an assumption (--efficiency).")
    return notes
