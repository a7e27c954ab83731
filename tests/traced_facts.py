"""Facts that a tiny model knows: it says common words only, and whatever it says is taken for a fact."""

import functools
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from published import small_tokenizer
from tiny import CONFIGS, reference, tiny

from interp.facts import Fact, fill
from interp.models.loading import from_transformers

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

WORDS = (" of", " the", " a", " in", " to", " tower", " city", " drink", " lines", " planets", " spaces")
SUBJECTS = ("tower", "city", "the tower", "the city", "the city of", "the tower of the")


@functools.cache
def speaker() -> "Transformer":
    """A tiny model whose likeliest token is always one of the words."""
    tokenizer = small_tokenizer()
    hf = reference(tiny(replace(CONFIGS["untied"], d_vocab=300)))
    others = [place for place in range(300) if place not in [tokenizer.encode(word).ids[0] for word in WORDS]]
    with torch.no_grad():
        hf.lm_head.weight[others] *= 0.01
    return from_transformers(hf, tokenizer, device="cpu")


@functools.cache
def known_facts() -> tuple[Fact, ...]:
    """Subjects of one to four tokens, in two relations: prompts of five lengths."""
    model, found = speaker(), []
    for relation, template in (("streets", "the {} of a city"), ("towers", "of {} of the city")):
        for subject in SUBJECTS:
            said = int(model(model.to_tokens(fill(template, subject)))[0, -1].argmax())
            word = model.tokenizer.str_tokens([said])[0].strip()
            found.append(Fact(subject=subject, relation=relation, template=template, object=word))
    return tuple(found)
