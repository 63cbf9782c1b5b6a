from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ortist.errors import BadRequest
from ortist.sampling import PerImageNoise, TorchCpuGenerator
from tests.sampling.draws import SEEDS, SHAPES, digest

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "noise.npz")


@pytest.mark.parametrize("index", range(len(SEEDS)), ids=[f"seed {seed}" for seed in SEEDS])
def test_a_sequence_of_draws_is_pytorchs_bit_for_bit(index: int) -> None:
    generator = TorchCpuGenerator(SEEDS[index])
    for j, shape in enumerate(SHAPES):
        values = generator.normal(shape)
        assert values.shape == shape
        assert values.dtype == np.float32
        flat = values.reshape(-1)
        ends = np.concatenate([flat[:4], flat[-4:]])
        np.testing.assert_array_equal(ends, GOLDEN["ends"][index, j, : len(ends)], str(shape))
        assert np.array_equal(digest(values), GOLDEN["digests"][index, j]), f"inside of {shape}"


def test_numbers_are_standard_normal() -> None:
    values = TorchCpuGenerator(7).normal((1 << 18,)).astype(np.float64)
    assert abs(values.mean()) < 0.01
    assert abs(values.std() - 1) < 0.01
    assert abs((np.abs(values) < 1).mean() - 0.6827) < 0.005


def test_no_number_is_ever_infinite() -> None:
    # The uniform number next to zero gives the largest radius there is: sqrt(2 * 24 * ln 2).
    values = TorchCpuGenerator(0).normal((1 << 20,))
    assert np.all(np.abs(values) <= 5.769)


def test_only_the_low_32_bits_of_a_seed_count_as_in_pytorch() -> None:
    assert np.array_equal(
        TorchCpuGenerator(5).normal((9,)), TorchCpuGenerator(2**32 + 5).normal((9,))
    )


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_out_of_range_is_refused(seed: int) -> None:
    with pytest.raises(BadRequest, match=f"seed {seed} is out of range"):
        TorchCpuGenerator(seed)


def test_a_picture_does_not_depend_on_its_batch() -> None:
    def batch(seeds: list[int]) -> list[np.ndarray]:
        noise = PerImageNoise([TorchCpuGenerator(seed) for seed in seeds])
        shape = (len(seeds), 4, 8, 8)
        return [noise.normal(shape), noise.normal(shape)]

    together, alone = batch([3, 4, 5]), batch([4])
    for draw in (0, 1):
        assert np.array_equal(together[draw][1:2], alone[draw])
    assert not np.array_equal(together[0][0], together[0][1])


def test_one_stream_for_a_batch_is_another_order() -> None:
    stream = TorchCpuGenerator(3).normal((2, 4, 8, 8))
    each = PerImageNoise([TorchCpuGenerator(3), TorchCpuGenerator(4)]).normal((2, 4, 8, 8))
    assert np.array_equal(stream[0], each[0])  # the first picture is the start of the same stream
    assert not np.array_equal(stream[1], each[1])


def test_a_batch_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="2 pictures"):
        PerImageNoise([TorchCpuGenerator(0), TorchCpuGenerator(1)]).normal((3, 4, 8, 8))
