"""Every orientation of the linear map gives the same values; which one runs depends on shapes and processor alone."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from interp.models import linear as module
from interp.models.linear import fastest_form, linear


@pytest.mark.parametrize("amd", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (2, 8), (1, 16), (3, 11), (1, 128), (2, 100), (3, 100)])
@pytest.mark.parametrize("d_out", [10, 7, 1500])
@pytest.mark.parametrize("biased", [True, False])
def test_every_orientation_gives_the_same_values(
    monkeypatch: pytest.MonkeyPatch, amd: bool, shape: tuple[int, int], d_out: int, biased: bool
) -> None:
    monkeypatch.setattr(module, "is_amd", lambda: amd)
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(*shape, 12, generator=generator), torch.randn(d_out, 12, generator=generator)
    bias = torch.randn(d_out, generator=generator) if biased else None
    found = linear(x, weight, bias)
    assert found.shape == (*shape, d_out)
    torch.testing.assert_close(found, F.linear(x, weight, bias), rtol=0, atol=1e-5)


def test_gradients_flow_whatever_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_amd", lambda: True)
    x, weight = torch.randn(1, 3, 4, requires_grad=True), torch.randn(5, 4)
    linear(x, weight).sum().backward()
    torch.testing.assert_close(x.grad, weight.sum(0).expand(1, 3, 4))


def test_the_choice_follows_the_measurements() -> None:
    assert [fastest_form(rows, 576, 3072, amd=True, onednn=True) for rows in (1, 2, 6, 7, 256, 257)] == [
        "halves",
        "transposed",
        "transposed",
        "onednn_transposed",
        "onednn_transposed",
        "onednn",
    ]
    assert [fastest_form(rows, 1536, 576, amd=True, onednn=True) for rows in (1, 3, 4, 15, 16, 128, 129)] == [
        "halves",
        "transposed",
        "blocks",
        "blocks",
        "transposed",
        "transposed",
        "linear",
    ]
    assert fastest_form(4, 1537, 576, amd=True, onednn=True) == "linear", "1,537 terms are not 4 equal blocks"
    assert [fastest_form(rows, 576, 576, amd=True, onednn=False) for rows in (128, 129)] == ["transposed", "linear"]
    assert fastest_form(1, 576, 577, amd=True) == "transposed", "an odd number of outputs has no halves"
    assert fastest_form(16, 1536, 576, amd=False) == "transposed"
    assert fastest_form(16, 576, 3072, amd=False) == "linear"
    assert fastest_form(1, 576, 576, amd=False) == "linear"


def test_strides_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices, transposed activations and transposed weights, none of which every library takes as it is."""
    generator = torch.Generator().manual_seed(0)
    wide, weight = torch.randn(40, 3 * 12, generator=generator), torch.randn(10, 12, generator=generator)
    for amd in (True, False):
        monkeypatch.setattr(module, "is_amd", lambda amd=amd: amd)
        for rows in (1, 3, 9, 40):
            for x in (wide[:rows, 12:24], wide[:rows, 12:24].t().contiguous().t()):
                for stored in (weight, weight.t().contiguous().t()):
                    torch.testing.assert_close(linear(x, stored), x.contiguous() @ weight.t(), rtol=0, atol=1e-5)


def test_long_sums_keep_their_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """One very large term among many small ones: what is rounded away beside it stays as little as in `F.linear`."""
    generator = torch.Generator().manual_seed(0)
    weight, x = torch.randn(64, 1536, generator=generator), torch.randn(200, 1536, generator=generator)
    x[:, 5] = 3000.0
    for amd in (True, False):
        monkeypatch.setattr(module, "is_amd", lambda amd=amd: amd)
        for rows in (4, 8, 15, 16, 128, 200):
            exact = x[:rows].double() @ weight.double().t()
            off, usual = (
                (y - exact).square().mean().sqrt() for y in (linear(x[:rows], weight), F.linear(x, weight)[:rows])
            )
            assert off <= 1.3 * usual, f"{rows} rows: {off:.1e}, F.linear {usual:.1e}"


def test_operations_are_counted_whatever_the_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's counter does not know oneDNN's product by itself; a sweep's cost would look smaller than it is."""
    for amd in (True, False):
        monkeypatch.setattr(module, "is_amd", lambda amd=amd: amd)
        for rows in (1, 2, 9, 300):
            with FlopCounterMode(display=False) as counter:
                linear(torch.ones(1, rows, 12), torch.ones(10, 12))
            assert counter.get_total_flops() == 2 * rows * 12 * 10


def test_whole_models_agree_on_either_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transposed views travel through the whole forward pass, recorded and not, without changing a value."""
    from tiny import CONFIGS, random_tokens, tiny

    for config in CONFIGS.values():
        model = tiny(config)
        for length in (1, 2, 12):
            tokens = random_tokens(config, 1, length)
            found = []
            for amd in (True, False):
                monkeypatch.setattr(module, "is_amd", lambda amd=amd: amd)
                found += [model(tokens), model.run_with_cache(tokens, "*")[0]]
            scale = float(found[0].abs().max())
            assert all((logits - found[0]).abs().max() <= 1e-5 * scale for logits in found)
