"""`interp plan`: what a model, or an analysis of it, will take, before anything is loaded."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interp.apps.cli.options import Common, Dtype, refuse, with_common

if TYPE_CHECKING:
    from interp.models.config import ModelConfig
    from interp.models.planner import ModelPlan, Numbers

EPILOG = """\b
Examples:
  interp plan llama-3.1-8b mixtral-8x7b --context 32768 --users 16 --on h200
  interp plan --layers 32 --heads 32 --head-dim 128 --context 131072
  interp plan llama-2-7b --kv-heads 8 --depth-width
  interp plan path/to/config.json --json
  interp plan llama-3.1-8b --analysis trace --tokens 10 --items 1000 --set samples=3 --on h200

\b
Accelerators: h200, h100-sxm, a100-80gb, a100-40gb, l40s, l4, a10, rtx-4090, rtx-3090, mi300x. No weights are read.
"""

PLAN, ANALYSIS = "bfloat16", "float32"  # number formats: models are served in the one, analyses load the other
OF_MODELS = ("tokens_of_context", "users", "depth_width")


@with_common("model", "device", "dtype", "prefix", "seed")
def plan(
    context: typer.Context,
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL]...",
            help="Presets, config.json files, folders, .gguf files or Hub ids; without one, a shape from numbers.",
            show_default=False,
        ),
    ] = None,
    layers: Annotated[int | None, typer.Option(metavar="N", help="Layers.", show_default=False)] = None,
    d_model: Annotated[
        int | None, typer.Option(metavar="N", help="Width of the residual stream.", show_default=False)
    ] = None,
    heads: Annotated[int | None, typer.Option(metavar="N", help="Query heads.", show_default=False)] = None,
    kv_heads: Annotated[int | None, typer.Option(metavar="N", help="KV heads.", show_default="heads")] = None,
    head_dim: Annotated[
        int | None, typer.Option(metavar="N", help="Width of a head.", show_default="d-model / heads")
    ] = None,
    d_mlp: Annotated[
        int | None,
        typer.Option(metavar="N", help="Neurons of the FFN, or of an expert.", show_default="8/3 d-model"),
    ] = None,
    vocab: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens of the vocabulary.", show_default="32000")
    ] = None,
    experts: Annotated[
        int | None, typer.Option(metavar="N", help="Experts in place of the FFN.", show_default=False)
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(metavar="N", help="Experts that a token goes through.", show_default="2")
    ] = None,
    number_format: Annotated[
        Dtype | None,
        typer.Option("--dtype", help="Number format.", show_default="bfloat16; of an analysis float32"),
    ] = None,
    tokens_of_context: Annotated[
        int, typer.Option("--context", metavar="N", min=1, help="Tokens that a user has.")
    ] = 4096,
    users: Annotated[int, typer.Option(metavar="N", min=1, help="Users at once.")] = 1,
    on: Annotated[
        str | None, typer.Option(metavar="ACCELERATOR", help="Where it runs, by name.", show_default=False)
    ] = None,
    efficiency: Annotated[
        float, typer.Option(metavar="SHARE", help="Share of the published peak that is reached: an assumption.")
    ] = 0.4,
    depth_width: Annotated[
        bool, typer.Option("--depth-width", help="Shapes of equal parameters, from wide to deep.")
    ] = False,
    analysis: Annotated[
        str | None, typer.Option(metavar="NAME", help="The cost of an analysis instead.", show_default=False)
    ] = None,
    tokens: Annotated[
        str, typer.Option(metavar="LIST", help="Tokens of an item, such as 10; or of several: 8,10,12.")
    ] = "10",
    items: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="How many items.", show_default="one of each length")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A setting of the analysis; may be repeated.", show_default=False
        ),
    ] = None,
    *,
    common: Common,
) -> None:
    """Count what models take: parameters, operations, keys and values, memory; several side by side.

    Numbers alone define a shape built like Llama; with a MODEL they change it. With --analysis: what an analysis will
    cost, on this machine, which is measured for a moment, or on a named accelerator.
    """
    from interp.apps.cli.output import check_folder
    from interp.apps.cli.plan_analysis import AnalysisAsked, show_costs
    from interp.apps.cli.plan_tables import show_plans
    from interp.models.planner import Numbers, accelerator

    if common.out is not None:
        check_folder(common.out)
    numbers = Numbers(layers, d_model, heads, kv_heads, head_dim, d_mlp, vocab, experts, top_k)
    speed = None if on is None else accelerator(on, dtype=number_format or ANALYSIS, efficiency=efficiency)
    if analysis is not None:
        refuse(context, "a plan of models; --analysis asks for something else", *OF_MODELS)
        asked = AnalysisAsked.read(analysis, tokens, items, setting or [], number_format or ANALYSIS)
        show_costs(_shapes(models, numbers, common), asked, speed, common)
        return
    refuse(context, "--analysis", "tokens", "items", "setting")
    if on is None:
        refuse(context, "--on", "efficiency")
    asked_of_all = {"dtype": number_format or PLAN, "context": tokens_of_context, "users": users}
    plans = _plans(_shapes(models, numbers, common), on, efficiency, asked_of_all)
    show_plans(plans, {} if models else numbers.assumed, depth_width, common)


def _plans(
    shapes: "Mapping[str, ModelConfig]", on: str | None, efficiency: float, asked: "Mapping[str, Any]"
) -> "list[ModelPlan]":
    from interp.models.planner import plan_model

    return [plan_model(shape, name=name, on=on, efficiency=efficiency, **asked) for name, shape in shapes.items()]


def _shapes(models: list[str] | None, numbers: "Numbers", common: Common) -> "dict[str, ModelConfig]":
    """What is planned, by name: the models, changed by numbers where there are some; or a shape of these alone."""
    from interp.apps.cli.session import working
    from interp.errors import UsageError
    from interp.models.planner import read_shape

    said = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in numbers.given.items())
    if not models:
        if not said:
            raise UsageError(
                "Nothing to plan: name a MODEL (`interp models list` shows presets), or give numbers such as "
                "--layers 32 --heads 32 --head-dim 128."
            )
        return {"shape": numbers.config()}
    found = {}
    for name in models:
        with working(f"Reading the configuration of {name}", common):
            shape = read_shape(name, revision=common.revision)
        found[f"{name} {said}" if said else name] = numbers.config(shape) if said else shape
    return found
