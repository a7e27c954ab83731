"""`interp trace`: where restoring one hidden state brings a forgotten fact back."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from interp.apps.cli.fact_options import Facts, Limit, Relations, about_facts, check_subject
from interp.apps.cli.options import Common, Occurrence, names_in, refuse, was_typed, with_common

if TYPE_CHECKING:
    from rich.console import RenderableType

    from interp.analyses.trace_settings import TraceOptions
    from interp.analyses.tracing import CausalTrace

Corruption = Literal["noise", "replace"]
Subjects = Literal["bundled", "facts"]

KINDS = ("resid", "mlp", "attn")  # those of the analysis, which brings torch along
BAR = 24

EPILOG = """\b
Examples:
  interp trace "The Eiffel Tower is located in the city of" --subject "The Eiffel Tower"
  interp trace "The Louvre is located in the city of" --subject "The Louvre" --kinds resid --samples 3
  interp trace "The Louvre is located in the city of" --subject "The Louvre" --estimate
  interp trace "Rome is in Italy. Rome is old" --subject Rome --occurrence 0 --out results
  interp trace "The capital of France is" --subject France --replacement Italy --severed mlp,attn
  interp trace --facts bundled --relation capital --limit 10 --kinds resid --samples 3
  interp trace --facts bundled --relation capital --estimate
  interp trace --facts my-facts.jsonl --noise-subjects facts
  interp trace --facts my-facts.jsonl --corruption replace --out results
"""


@with_common()
def trace(
    context: typer.Context,
    prompt: Annotated[
        str | None, typer.Argument(metavar="[PROMPT]", help="A fact without its answer.", show_default=False)
    ] = None,
    subject: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="What the fact is about, as the prompt names it.", show_default=False),
    ] = None,
    answer: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            help='One token, its leading space included: " Paris". Without it, what the model says.',
            show_default=False,
        ),
    ] = None,
    kinds: Annotated[
        str, typer.Option(metavar="LIST", help="What is restored: residual stream, FFN outputs, attention outputs.")
    ] = ",".join(KINDS),
    severed: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="mlp, attn or both: also restore the residual stream while these stay as they were.",
            show_default=False,
        ),
    ] = "",
    noise: Annotated[
        str,
        typer.Option(
            metavar="LEVEL",
            help="s3: 3 standard deviations of embeddings; or a level such as 0.3. Uniform: us3, u0.3.",
        ),
    ] = "s3",
    replacement: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Another subject to hide this one, instead of noise.", show_default=False),
    ] = None,
    samples: Annotated[int, typer.Option(metavar="N", min=1, help="Draws of noise to average over.")] = 10,
    window: Annotated[
        int, typer.Option(metavar="N", min=1, help="Layers of mlp and attn that are restored together.")
    ] = 10,
    occurrence: Occurrence = None,
    facts: Facts = None,
    relation: Relations = None,
    limit: Limit = None,
    noise_subjects: Annotated[
        Subjects,
        typer.Option(help="Whose embeddings s3 is measured on: all subjects that come along, or all of --facts FILE."),
    ] = "bundled",
    corruption: Annotated[
        Corruption | None,
        typer.Option(help="Hide the subjects of facts by noise or by each other.", show_default="noise"),
    ] = None,
    budget_mb: Annotated[int, typer.Option(metavar="MIB", min=1, help="Memory to use beside the model.")] = 1024,
    estimate: Annotated[bool, typer.Option("--estimate", help="Say what the trace will cost, and stop.")] = False,
    *,
    common: Common,
) -> None:
    """Restore one hidden state after the other while the subject is hidden: causal tracing.

    Shows, for every token of PROMPT, at which layer restoring brings the answer back most; with --facts, the same for
    the parts that tokens play, on average over the facts that the model knows. --json and --out hold every cell.
    """
    from interp.apps.cli.session import deliver, load_model, working
    from interp.apps.cli.trace_cost import announce, estimated
    from interp.apps.cli.trace_facts import Asked, trace_file
    from interp.errors import UsageError

    options: TraceOptions = {
        "kinds": names_in("--kinds", kinds, KINDS),  # type: ignore[typeddict-item]  # checked
        "severed": names_in("--severed", severed, KINDS[1:], required=False),  # type: ignore[typeddict-item]  # checked
        "noise": noise,
        "samples": samples,
        "window": window,
        "seed": common.seed,
        "prefix": common.prefix,
        "budget": budget_mb * 2**20,
    }
    if replacement is not None or corruption == "replace":
        refuse(context, "noise, in place of which another subject was asked for", "noise", "samples", "noise_subjects")
    if "s" not in noise:
        refuse(context, "a noise in standard deviations, such as s3", "noise_subjects")
    if estimate and was_typed(context, "out"):
        raise UsageError("--estimate runs nothing, so that --out has nothing to save. Leave out one of the two.")
    facts_only = ("corruption", "noise_subjects")
    if about_facts(context, prompt_only=("subject", "answer", "replacement", "occurrence"), facts_only=facts_only):
        asked = Asked(str(facts), relation, limit, corruption or "noise", noise_subjects == "facts", estimate)
        trace_file(asked, options, common)
        return
    check_subject(subject)
    model = load_model(common)
    from interp.analyses.tracing import plan_trace

    with working("Running with and without the subject", common):
        planned = plan_trace(
            model,
            str(prompt),
            str(subject),
            answer=answer,
            occurrence=occurrence,
            replacement=replacement,
            **options,
        )
    if estimate:
        estimated(planned.cost(), planned.settings, common)
        return
    announce(planned.cost, planned.replay.rows * planned.tokens.numel(), model, common)
    with working("Restoring every state in turn", common) as progress:
        result = planned.run(progress=progress)
    drawn = [*result.summary()[:-1], *(_drawn(result, str(kind)) for kind in result.axes["kind"])]
    deliver(result, result.to_frame(), [*drawn, f"\n{result.caution}"], common, "trace")


def _drawn(result: "CausalTrace", kind: str) -> "RenderableType":
    """Token by token, the layer at which restoring brings most back."""
    from interp.apps.cli.output import show_token, table

    said = show_token(str(result.settings["answer"]))
    rows = [_row(result, kind, position) for position in range(len(result.axes["position"]))]
    title = f"\n{result.panel(kind)}, each token where restoring it helps most (* the subject)"
    return table(["token", "at layer>", "effect>", "±>", f"p({said})>", ""], rows, title)


def _row(result: "CausalTrace", kind: str, position: int) -> tuple[str, ...]:
    """One token's best layer. No layer is best where nothing changes, and one sample has no standard error."""
    from interp.apps.cli.output import show_token

    _, layer, effect = result.peak(kind, position=position)
    one: dict[str, int | str] = {"kind": kind, "position": position, "layer": layer}
    error, probability = (float(result.at(name, **one)) for name in ("effect_error", "probability"))
    return (
        show_token(str(result["token"][position])) + ("*" if result["in_subject"][position] else ""),
        _layers(result, kind, layer) if result.at("effect", kind=kind, position=position).any() else "–",
        f"{effect:+.3f}",
        f"{error:.3f}" if result.settings["samples"] != 1 else "–",
        f"{probability:.3f}",
        "█" * round(BAR * max(effect, 0.0)),
    )


def _layers(result: "CausalTrace", kind: str, layer: int) -> str:
    """A layer, and those that were restored together with it."""
    first, last = (int(result.at(f"{end}_layer", kind=kind, layer=layer)) for end in ("first", "last"))
    return str(layer) if first == last else f"{layer} ({first} to {last})"
