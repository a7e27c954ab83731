"""Facts on a page: one that is typed or picked, its subject marked, or a set of those that come along."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import streamlit as st

from interp.apps.dashboard import address, look
from interp.apps.dashboard.parameters import Values

if TYPE_CHECKING:
    from interp.apps.dashboard.context import Context
    from interp.apps.dashboard.page import Page
    from interp.facts import Fact
    from interp.models.transformer import Transformer

ALL = "all"
RELATIONS = (
    *(ALL, "capital", "continent", "currency", "main language", "landmark city", "landmark country", "city country"),
    *("city state", "river continent", "author", "painter", "inventor", "product maker", "company country"),
    *("birth country", "sport", "instrument", "animal class", "element symbol"),
)


def one(values: Values) -> bool:
    """Whether a single fact is asked for."""
    return bool(values["of"] == "one")


def replacing(values: Values) -> bool:
    """Whether another subject is to hide that of a single fact."""
    return one(values) and values["corruption"] == "replace"


def chosen(values: Values) -> "tuple[Fact, ...]":
    """The facts of the set."""
    from interp.analyses.fact_data import bundled_facts
    from interp.facts import of_relations, spread

    named = [] if values["relation"] == ALL else [values["relation"]]
    facts = bundled_facts()
    return spread(of_relations(facts, named) if named else facts, values["limit"])


def lengths(model: "Transformer", values: Values) -> tuple[list[int], list[list[int]]]:
    """How many tokens each prompt has, and which of them are the subject's. Raises `UsageError` where it has none."""
    from interp.facts import exact_span
    from interp.prompts import find_subject

    tokenizer, prefix = model.tokenizer, values["prefix"]
    if one(values):
        where: dict[str, Any] = {"prefix": prefix, "occurrence": values["occurrence"]}
        span = find_subject(tokenizer, values["prompt"], values["subject"], **where)
        return [len(tokenizer.prompt_ids(values["prompt"], prefix))], [span.positions]
    facts = chosen(values)
    spans = [exact_span(tokenizer, fact.template, fact.subject, prefix=prefix).positions for fact in facts]
    return [len(tokenizer.prompt_ids(fact.prompt, prefix)) for fact in facts], spans


def pick(context: "Context") -> None:
    """A list of the facts that come along; one that is picked fills the inputs."""
    from interp.analyses.fact_data import bundled_facts

    facts = {fact.id: fact for fact in bundled_facts()}
    key = f"_pick.{context.page.key}"

    def take() -> None:
        if (name := st.session_state[key]) is not None:
            _fill(context.page, context.model, facts[name])

    st.selectbox(
        "Pick a fact that comes along",
        list(facts),
        index=None,
        key=key,
        format_func=lambda name: f"{facts[name].prompt} → {facts[name].object}  ({facts[name].relation})",
        placeholder="or type one above",
        on_change=take,
    )


def _fill(page: "Page", model: "Transformer", fact: "Fact") -> None:
    """The fact's prompt, subject, and the first token of its object, as the values of the page."""
    from interp.facts import answer_ids

    answer = model.tokenizer.str_tokens(answer_ids(model.tokenizer, fact.prompt, fact.answer)[:1])[0]
    earlier = fact.template[: fact.template.index("{}")].count(fact.subject)
    filled: Mapping[str, Any] = {
        "prompt": fact.prompt,
        "subject": fact.subject,
        "answer": answer,
        "occurrence": earlier,
        "replacement": fact.counterfactual or "",
    }
    for name, value in filled.items():
        address.assign(page, name, value)


def confirm(context: "Context") -> None:
    """The prompt as tokens, the subject's marked, so that it can be seen whether the right ones are meant."""
    from interp.errors import UsageError
    from interp.plots import visible
    from interp.prompts import find_subject

    values, tokenizer = context.values, context.model.tokenizer
    if not (values["prompt"] and values["subject"]):
        return
    where: dict[str, Any] = {"prefix": values["prefix"], "occurrence": values["occurrence"]}
    try:
        tokens = tokenizer.str_tokens(tokenizer.prompt_ids(values["prompt"], values["prefix"]))
        span = find_subject(tokenizer, values["prompt"], values["subject"], **where)
    except UsageError as error:
        st.warning(str(error))
        return
    spans = [
        f'<span{" class=marked" if place in span.positions else ""} title="position {place}">{visible(token)}</span>'
        for place, token in enumerate(tokens)
    ]
    st.html(f'<div class="interp-tokens">{"".join(spans)}</div>')
    st.html(f'<p class="interp-question" style="margin:0">{_said(span, values)}</p>')


def _said(span: Any, values: Values) -> str:
    """Where the subject stands, in a sentence."""
    pieces = " ".join(look.chip(piece) for piece in span.pieces)
    places = f"position {span.start}" if span.start == span.last else f"positions {span.start} to {span.last}"
    times = values["prompt"].count(values["subject"])
    more = f" It stands {times} times in the prompt; Occurrence says which is meant." if times > 1 else ""
    wider = "" if span.exact else " These tokens hold more than the subject: all of them are hidden."
    return f"The subject is {pieces}, {places}.{more}{wider}"
