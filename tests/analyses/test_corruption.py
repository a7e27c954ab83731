"""How a subject is hidden: what each rule of noise draws, and what may take a subject's place."""

import numpy as np
import pytest
import torch
from traced_facts import speaker

from interp.analyses.corruption import case_of, corrupted, noise_of
from interp.analyses.subjects import bundled_subjects, embedding_spread
from interp.analyses.trace_settings import TraceSettings
from interp.errors import UsageError
from interp.prompts import find_subject

PROMPT = "of the tower of the city"


def test_a_rule_says_the_shape_and_the_level() -> None:
    model, subjects = speaker(), ("tower", "the city")
    spread = embedding_spread(model, subjects)
    found = {rule: noise_of(model, rule, subjects) for rule in ("s3", "us2", "u0.3", "0.3", 0.3, "1e-1")}
    assert {rule: (each.shape, each.level) for rule, each in found.items()} == {
        "s3": ("normal", 3 * spread),
        "us2": ("uniform", 2 * spread),
        "u0.3": ("uniform", 0.3),
        "0.3": ("normal", 0.3),
        0.3: ("normal", 0.3),
        "1e-1": ("normal", 0.1),
    }
    assert [each.rule for each in found.values()] == ["s3", "us2", "u0.3", "0.3", "0.3", "0.1"]
    assert (found["s3"].spread, found["s3"].subjects) == (spread, subjects)
    assert found["u0.3"].spread is found["u0.3"].subjects is None


def test_the_level_is_measured_on_the_subjects_of_the_bundled_facts_unless_others_are_named() -> None:
    model = speaker()
    default = noise_of(model, "s3")
    assert default.level == 3 * embedding_spread(model, bundled_subjects())
    assert default.level != pytest.approx(noise_of(model, "s3", ["tower"]).level, rel=1e-3)
    assert str(len(bundled_subjects())) in str(default.subjects)


@pytest.mark.parametrize(("rule", "deviation"), [("0.7", 0.7), ("u0.7", 0.7 / 3**0.5)])
def test_noise_has_its_deviation_and_is_drawn_as_the_reference_draws_it(rule: str, deviation: float) -> None:
    noise = noise_of(speaker(), rule)
    drawn = noise.draw(200, 3, 64, seed=1)
    generator = np.random.RandomState(1)
    expected = generator.uniform(-1, 1, (200, 3, 64)) if rule.startswith("u") else generator.randn(200, 3, 64)
    np.testing.assert_allclose(drawn.numpy(), 0.7 * expected, atol=1e-6)
    assert drawn.std().item() == pytest.approx(deviation, rel=0.03)
    assert rule.startswith("u") == (drawn.abs().max().item() <= 0.7)


@pytest.mark.parametrize("rule", ["u", "us", "3s", "su3", "u-1", "U3", "s3 ", "uinf"])
def test_other_rules_are_refused(rule: str) -> None:
    with pytest.raises(UsageError, match="'us3' for uniform noise"):
        noise_of(speaker(), rule)


def test_cases_of_one_length_have_each_its_own_noise_and_none_beside_its_subject() -> None:
    model, settings = speaker(), TraceSettings(samples=50)
    cases = [
        case_of(model.tokenizer, prompt, find_subject(model.tokenizer, prompt, subject), "doc")
        for prompt, subject in ((PROMPT, "the tower"), ("of the city of the tower", "the city of"))
    ]
    noise = noise_of(model, "0.5")
    tokens, hooks = corrupted(cases, noise, settings, model.config.d_model)
    with model.hooks(hooks):
        _, cache = model.run_with_cache(tokens, "hook_embed")
    added = (cache["hook_embed"] - model.W_E[tokens]).unflatten(0, (2, 50))
    for case, own in zip(cases, added, strict=True):
        inside = case.span.positions
        drawn = noise.draw(50, len(inside), model.config.d_model, seed=0)
        torch.testing.assert_close(own[:, inside], drawn, rtol=0, atol=1e-6)
        assert (own[:, [place for place in range(own.shape[1]) if place not in inside]] == 0).all()


def test_another_subject_takes_the_place_token_for_token() -> None:
    model = speaker()
    span = find_subject(model.tokenizer, PROMPT, "the tower")
    case = case_of(model.tokenizer, PROMPT, span, "doc", "of the city of the city")
    tokens, hooks = corrupted([case], None, TraceSettings(), model.config.d_model)
    assert hooks == []
    assert tokens.tolist() == model.to_tokens("of the city of the city").tolist()
    assert (tokens != model.to_tokens(PROMPT)).nonzero().tolist() == [[0, 3]]


@pytest.mark.parametrize(
    "other",
    [PROMPT, "of city of the city", "of the city of the tower", "of the city of the city of"],
    ids=["itself", "shorter", "another end", "longer"],
)
def test_what_does_not_fit_in_the_subjects_place_is_refused(other: str) -> None:
    tokenizer = speaker().tokenizer
    with pytest.raises(UsageError, match="does not take the place of 'the tower' token for token"):
        case_of(tokenizer, PROMPT, find_subject(tokenizer, PROMPT, "the tower"), "doc", other)
