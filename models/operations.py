"""How many operations a forward pass does, whole or in part, from the configuration alone.

Two for each multiplication with its addition, as `torch.utils.flop_counter` counts: the products with weights, and
in attention a query with every key of the text and the sum over as many values. Keys that a query may not read are
masked, not left out, so that windows and causality save nothing here. Norms, rotations, activations and softmax are not
counted; in models of any size they are some per mille.
"""

from interp.models.config import ModelConfig


def run_flops(
    config: ModelConfig,
    length: int,
    *,
    batch: int = 1,
    join: int = 0,
    start: int = 0,
    kept: int | None = None,
    read: int | None = None,
) -> int:
    """Operations of a run over texts of `length` tokens.

    `join`: the layer whose input it starts from; `start`: the first column that is computed, earlier keys and values
    being there already; `kept`: the first column that is still computed behind the last layer's attention, by default
    `start`; `read`: at how many columns of each text logits are made, by default at all that are kept.
    """
    joint, queries = (config.n_heads + 2 * config.n_kv_heads) * config.d_head, config.n_heads * config.d_head
    kept = start if kept is None else kept
    columns = length - start
    products = attention = 0
    for layer in range(join, config.n_layers):
        behind = columns if layer < config.n_layers - 1 else length - kept
        products += columns * joint + behind * (queries + config.ffn_width(layer))
        attention += 2 * behind * queries * length
    logits = (length - kept if read is None else read) * config.d_model * config.d_vocab
    return 2 * batch * (products * config.d_model + attention + logits)
