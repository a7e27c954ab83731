"""Scores of every head against TransformerLens' `detect_head`, and against an eager forward pass of `transformers`.

`detect_head` runs one sequence after the other, the document separator in front, keeps every pattern, and multiplies
those of each head with a pattern of noughts and ones, 1 where an induction head looks; its score is the share of all
attention that this keeps. Where TransformerLens is not installed, the same is stated here on `transformers`' eager
attention: that leaves out what its hooks and caches cost, so the peer is the faster for it.
"""

import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

import interp
from benchmarks.measuring import Row, in_fresh_process, ratio_row
from benchmarks.models import ours, peer, random_tokens
from interp.analyses import induction

SEQ_LEN, N_SEQS = 128, 4


def head_scores() -> Iterator[Row]:
    """All five scores of every head, against an eager forward pass that returns its attentions."""
    model, hf, tokens = ours(), peer("eager"), random_tokens(16, 101)
    yield ratio_row(
        "five head scores 16 × 101",
        lambda: induction.score_heads(model, seq_len=50, repeats=2, n_seqs=16, seed=0),
        lambda: hf(tokens, use_cache=False, output_attentions=True).attentions,
        0.85,
        9,
    )
    code = (
        "import interp, resource; from interp.analyses import induction; m = interp.load('smollm2-135m', device='cpu');"
        "induction.score_heads(m, seq_len=2047, repeats=2, n_seqs=1, prefix='doc');"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)"
    )
    peak = in_fresh_process(code)
    yield Row("head scores of 4,095 tokens, peak of the process", f"{peak:.2f} GiB", peak, 4e9 / 2**30, "GiB")


def detected_heads() -> Iterator[Row]:
    """Our scores and intervals against `detect_head`, over the same tokens."""
    model = ours()
    found = induction.score_heads(model, seq_len=SEQ_LEN, n_seqs=N_SEQS)
    tokens, (named, detect) = torch.tensor(found["tokens"]), _detector()
    detected = detect(tokens)
    best = divmod(int(detected.argmax()), model.config.n_heads)
    assert best == tuple(found.ranked(1)[["layer", "head"]].iloc[0]), "both should find the same head first"
    yield ratio_row(
        f"head scores {N_SEQS} × (2 × {SEQ_LEN}) ÷ detect_head of {named}",
        lambda: induction.score_heads(model, seq_len=SEQ_LEN, n_seqs=N_SEQS),
        lambda: detect(tokens),
        0.5,
        5,
    )


def atlas() -> Iterator[Row]:
    """The atlas of all heads, random and natural text, against plain forward passes over the same tokens."""
    from interp.analyses.atlas import head_atlas

    model = ours()
    read = _tokens_read(lambda: head_atlas(model))

    def plain() -> None:
        for tokens, mask in read:
            model(tokens, mask)

    yield ratio_row("head atlas ÷ plain forward passes", lambda: head_atlas(model), plain, 2.5, 5)


def _detector() -> tuple[str, Callable[[Tensor], Tensor]]:
    """Who detects heads, and how: [layer, head] from tokens [text, position]."""
    if find_spec("transformer_lens") is None:
        return "transformers, restated", _restated
    return "TransformerLens", _transformer_lens()


@torch.no_grad()
def _restated(tokens: Tensor) -> Tensor:
    """`detect_head(…, "induction_head", error_measure="mul")`: one text at a time, the mean over texts."""
    scores = []
    for text in tokens:
        attentions = peer("eager")(text[None], use_cache=False, output_attentions=True).attentions
        wanted = _wanted(text)
        scores.append([[(head * wanted).sum() / head.sum() for head in layer[0]] for layer in attentions])
    return torch.tensor(scores).mean(0)


def _wanted(text: Tensor) -> Tensor:
    """1 at the key behind every earlier occurrence of the query's token."""
    same = (text[:, None] == text[None, :]).tril(-1)
    return same.float().roll(1, -1).tril()


def _transformer_lens() -> Callable[[Tensor], Tensor]:
    """The original (version 4 and later), on the weights of the peer, given ids where it expects texts."""
    detect_head = import_module("transformer_lens.head_detector").detect_head
    bridge = import_module("transformer_lens.model_bridge").TransformerBridge
    with tempfile.TemporaryDirectory() as folder:
        _save_peer(folder)
        model = bridge.boot_transformers(folder, device="cpu", dtype=torch.float32)
    model.enable_compatibility_mode(disable_warnings=True)
    model.to_tokens = lambda ids: torch.stack(ids) if isinstance(ids, list) else ids[None]
    return lambda tokens: detect_head(model, list(tokens), "induction_head")


def _save_peer(folder: str) -> None:
    """The peer as a folder of `transformers`; its weights are dequantised, which its configuration does not know."""
    from transformers import AutoTokenizer

    hf, path = peer("eager"), interp.pull("smollm2-135m")
    hf.hf_quantizer, hf.is_quantized = None, False
    hf.config.__dict__.pop("quantization_config", None)
    hf.save_pretrained(folder)
    AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name).save_pretrained(folder)


def _tokens_read(run: Callable[[], object]) -> list[tuple[Tensor, Tensor | None]]:
    """What every forward pass inside `run` was given."""
    model, read = ours(), []
    forward = model.forward

    def noting(tokens: Tensor, mask: Tensor | None = None, *rest: Any) -> Tensor:
        read.append((tokens, mask))
        return forward(tokens, mask, *rest)

    model.forward = noting  # type: ignore[method-assign]  # for as long as it takes to see the tokens
    try:
        run()
    finally:
        del model.forward
    return read
