"""Operations of a token: while a text is read (prefill), and while it is written on (decode).

    decode = 2 · numbers in products + 4 · layers · heads · head width · context
    prefill of n tokens = 2 · n · numbers in products + 4 · n² · layers · heads · head width

Two operations for each multiplication with its addition, as `torch.utils.flop_counter` counts. The numbers in products
are those of all matrices that a token goes through, of a mixture the chosen experts; embeddings are looked up, so that
only the unembedding counts, and of a prefill only at the last token. Windows and causality are masks here and save
nothing; kernels that leave out what is masked do about half of a prefill's attention.
"""

from dataclasses import dataclass

from interp.models.config import ModelConfig
from interp.models.operations import run_flops


@dataclass(frozen=True)
class TokenFlops:
    """Operations of one token."""

    layers: int
    """Products with the weights of all layers."""
    unembedding: int
    per_key: int
    """Attention, for every token that is read."""

    @property
    def without_attention(self) -> int:
        """What does not depend on the context."""
        return self.layers + self.unembedding

    def decode(self, context: int) -> int:
        """Writing one token that reads `context` tokens, itself included."""
        return self.without_attention + context * self.per_key

    def prefill(self, length: int) -> int:
        """Reading a text, with the logits of its last token."""
        return length * (self.layers + length * self.per_key) + self.unembedding


def token_flops(config: ModelConfig) -> TokenFlops:
    """Operations of one token of a model of this shape."""
    per_key = 4 * config.n_layers * config.n_heads * config.d_head
    return TokenFlops(run_flops(config, 1, read=0) - per_key, 2 * config.d_model * config.d_vocab, per_key)
