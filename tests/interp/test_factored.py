"""A product that is never formed answers as the formed one does."""

import pytest
import torch
from torch import Tensor

from interp.errors import UsageError
from interp.factored import FactoredMatrix

SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "thin": ((7, 3), (3, 5)),
    "square": ((6, 2), (2, 6)),
    "rank_above_size": ((4, 9), (9, 4)),
    "batch": ((2, 3, 8, 4), (2, 3, 4, 8)),
    "shared_right": ((3, 6, 2), (1, 2, 6)),
}


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.fixture(params=SHAPES.values(), ids=SHAPES)
def product(request: pytest.FixtureRequest) -> FactoredMatrix:
    left, right = request.param
    return FactoredMatrix(random(*left, seed=1), random(*right, seed=2))


@pytest.fixture
def square() -> FactoredMatrix:
    return FactoredMatrix(random(2, 6, 3, seed=3), random(2, 3, 6, seed=4))


class TestTheProduct:
    def test_its_rows_are_those_of_the_formed_one(self, product: FactoredMatrix) -> None:
        formed = product.left @ product.right
        assert product.shape == formed.shape
        torch.testing.assert_close(product.matrix(), formed)
        torch.testing.assert_close(product.T.matrix(), formed.mT)
        chosen = torch.tensor([3, 0, 3])
        torch.testing.assert_close(product.rows(chosen), formed[..., chosen, :])

    @pytest.mark.parametrize("rank", [2, 5])
    def test_it_multiplies_through_the_narrower_of_two(self, rank: int) -> None:
        first = FactoredMatrix(random(4, 8, 3), random(4, 3, 7))
        second = FactoredMatrix(random(1, 7, rank), random(1, rank, 9))
        both = first @ second
        assert both.rank == min(3, rank)
        torch.testing.assert_close(both.matrix(), first.matrix() @ second.matrix())

    def test_it_multiplies_with_plain_matrices_on_either_side(self) -> None:
        product, plain = FactoredMatrix(random(8, 3), random(3, 7)), random(7, 8)
        torch.testing.assert_close((product @ plain).matrix(), product.matrix() @ plain)
        torch.testing.assert_close((plain @ product).matrix(), plain @ product.matrix())

    def test_it_says_its_shape_without_printing_numbers(self) -> None:
        product = FactoredMatrix(random(5, 2, dtype=torch.float32), random(2, 9, dtype=torch.float32))
        assert repr(product) == "FactoredMatrix([5, 9] through 2, float32)"


class TestWhatItIsLike:
    def test_its_norm_is_the_root_of_all_squares(self, product: FactoredMatrix) -> None:
        torch.testing.assert_close(product.norm(), torch.linalg.matrix_norm(product.matrix()))

    def test_a_small_norm_between_large_factors_is_not_lost_to_rounding(self) -> None:
        """The two factors nearly cancel: what is left is a thousandth of what either holds."""
        left = random(40, 2, dtype=torch.float32)
        left[:, 1] = left[:, 0]
        right = random(2, 40, dtype=torch.float32)
        right[1] = -right[0] * (1 + 2.0**-10)
        exact = torch.linalg.matrix_norm(left.double() @ right.double())
        torch.testing.assert_close(FactoredMatrix(left, right).norm().double(), exact, rtol=1e-6, atol=0)

    def test_its_singular_value_decomposition_is_that_of_the_formed_one(self, product: FactoredMatrix) -> None:
        u, s, vh = product.svd()
        torch.testing.assert_close(u @ s.diag_embed() @ vh, product.matrix())
        torch.testing.assert_close(s, torch.linalg.svdvals(product.matrix())[..., : s.shape[-1]])
        identity = torch.eye(s.shape[-1], dtype=torch.float64).expand(*s.shape[:-1], -1, -1)
        torch.testing.assert_close(u.mT @ u, identity)
        torch.testing.assert_close(vh @ vh.mT, identity)

    @pytest.mark.parametrize("name", ["square", "rank_above_size", "batch", "shared_right"])
    def test_its_eigenvalues_are_those_of_the_formed_one_that_are_not_nought(self, name: str) -> None:
        left, right = SHAPES[name]
        product = FactoredMatrix(random(*left, seed=1), random(*right, seed=2))
        found, formed = product.eigenvalues(), torch.linalg.eigvals(product.matrix())
        count = found.shape[-1]
        for mine, all_of_them in zip(found.reshape(-1, count), formed.reshape(-1, formed.shape[-1]), strict=True):
            kept = all_of_them[all_of_them.abs().argsort(descending=True)][:count]
            apart = (mine[:, None] - kept).abs()
            assert max(apart.min(0).values.max(), apart.min(1).values.max()) < 1e-10

    def test_its_trace_is_the_sum_of_its_eigenvalues(self, square: FactoredMatrix) -> None:
        torch.testing.assert_close(square.trace(), square.matrix().diagonal(dim1=-2, dim2=-1).sum(-1))
        torch.testing.assert_close(square.trace(), square.eigenvalues().sum(-1).real)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_answers_have_the_dtype_of_the_factors(self, dtype: torch.dtype, device: str) -> None:
        product = FactoredMatrix(random(6, 2, dtype=dtype).to(device), random(2, 6, dtype=dtype).to(device))
        answers = (product.matrix(), product.norm(), *product.svd(), product.trace(), product.top_entries(3).values)
        assert {(answer.dtype, answer.device.type) for answer in answers} == {(dtype, device)}
        assert product.eigenvalues().dtype == dtype.to_complex()


class TestItsLargestEntries:
    @pytest.mark.parametrize("largest", [True, False])
    @pytest.mark.parametrize("k", [1, 4, 15])
    def test_they_are_those_of_the_formed_one_in_order(self, product: FactoredMatrix, k: int, largest: bool) -> None:
        found, formed = product.top_entries(k, largest=largest, block=2), product.matrix()
        torch.testing.assert_close(found.values, formed.flatten(-2).topk(k, largest=largest).values)
        places = found.rows * formed.shape[-1] + found.columns
        torch.testing.assert_close(formed.flatten(-2).gather(-1, places), found.values)

    @pytest.mark.parametrize("block", [1, 7, 10_000])
    def test_the_size_of_blocks_changes_nothing(self, product: FactoredMatrix, block: int) -> None:
        whole, parts = product.top_entries(5), product.top_entries(5, block=block)
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(whole[1:], parts[1:], strict=True))

    def test_most_entries_are_never_formed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With a few large rows and columns, small ones are left out; never does more than a block exist at a time."""
        formed: list[int] = []
        multiply = Tensor.__matmul__

        def watched(left: Tensor, right: Tensor) -> Tensor:
            formed.append(multiply(left, right).numel())
            return multiply(left, right)

        falling = torch.linspace(5, 0, 500, dtype=torch.float64).exp()
        product = FactoredMatrix(random(500, 4) * falling[:, None], random(4, 500, seed=1) * falling)
        expected = product.matrix().flatten().topk(4).values
        monkeypatch.setattr(Tensor, "__matmul__", watched)
        torch.testing.assert_close(product.top_entries(4, block=3000).values, expected)
        assert max(formed) <= 3000
        assert sum(formed) < 500 * 500 / 10

    def test_nothing_but_noughts_is_found_as_such(self) -> None:
        product = FactoredMatrix(torch.zeros(6, 2), torch.zeros(2, 5))
        assert product.top_entries(4).values.tolist() == [0, 0, 0, 0]


class TestWhatIsRefused:
    @pytest.mark.usefixtures("shapes_unchecked")
    def test_factors_that_do_not_fit(self) -> None:
        with pytest.raises(UsageError, match=r"\[5, 2\] and \[3, 5\] have no product"):
            FactoredMatrix(random(5, 2), random(3, 5))
        with pytest.raises(UsageError, match="have no product"):
            FactoredMatrix(random(2), random(2, 5))

    def test_batches_that_do_not_fit(self) -> None:
        with pytest.raises(UsageError, match=r"batches \[2\] and \[3\]"):
            FactoredMatrix(random(2, 5, 2), random(3, 2, 5))

    def test_halves_and_mixtures_of_dtypes(self) -> None:
        for left, right in ((torch.float16, torch.float16), (torch.float32, torch.float64)):
            with pytest.raises(UsageError, match="both float32 or both float64"):
                FactoredMatrix(random(5, 2).to(left), random(2, 5).to(right))

    def test_eigenvalues_and_trace_of_what_is_not_square(self) -> None:
        product = FactoredMatrix(random(5, 2), random(2, 4))
        for ask in (product.eigenvalues, product.trace):
            with pytest.raises(UsageError, match="5 × 4"):
                ask()

    @pytest.mark.parametrize(("k", "block"), [(0, 9), (21, 9), (3, 0)])
    def test_more_entries_than_there_are_or_none(self, k: int, block: int) -> None:
        with pytest.raises(UsageError, match="expected k from 1 to 20"):
            FactoredMatrix(random(5, 2), random(2, 4)).top_entries(k, block=block)
