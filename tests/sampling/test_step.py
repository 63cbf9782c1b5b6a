from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ortist.sampling import StepRow, begin, step

ROW = StepRow(
    step=0,
    timestep=1.0,
    alpha=1.0,
    sigma=2.0,
    scale_in=1.0,
    c_skip=2.0,
    c_out=-1.0,
    x_mix=(0.5,),
    x0_mix=(0.25,),
)


def of(value: float) -> np.ndarray:
    return np.full((1, 1, 2, 2), value, dtype=np.float32)


def test_a_row_makes_an_estimate_and_the_next_latents() -> None:
    state = step(ROW, begin(of(3.0)), of(1.0), None)
    assert state.x0.tolist() == of(5.0).tolist()  # 2 * 3 - 1
    assert state.x.tolist() == of(2.75).tolist()  # 0.5 * 3 + 0.25 * 5
    assert state.x.dtype == np.float32


def test_the_estimate_is_clipped_and_the_output_is_not() -> None:
    row = replace(ROW, x0_clip=1.0, output_mix=10.0)
    state = step(row, begin(of(3.0)), of(1.0), None)
    assert state.x0.tolist() == of(1.0).tolist()
    assert state.x.tolist() == of(0.5 * 3 + 0.25 * 1 + 10 * 1).tolist()


def test_history_is_read_newest_first_and_dropped_when_no_longer_needed() -> None:
    first = replace(ROW, keep_x=2, keep_x0=1, noise=(2.0,), keep_noise=1)
    state = step(first, begin(of(3.0)), of(1.0), of(1.0))
    assert (len(state.xs), len(state.x0s), len(state.noises)) == (2, 1, 1)
    x, x0 = float(state.x[0, 0, 0, 0]), float(state.x0[0, 0, 0, 0])
    second = replace(
        ROW, c_skip=1.0, c_out=0.0, x_mix=(1.0, 100.0), x0_mix=(10.0, 1000.0), noise=(5.0, 0.5)
    )
    last = step(second, state, of(0.0), of(2.0))
    expected = x + 100 * 3.0 + 10 * x + 1000 * x0 + 5 * 2.0 + 0.5 * 1.0
    assert last.x.tolist() == of(expected).tolist()
    assert (len(last.xs), len(last.x0s), len(last.noises)) == (1, 1, 0)


def test_a_step_changes_nothing_it_was_given() -> None:
    x, output, noise = of(3.0), of(1.0), of(0.5)
    state = begin(x)
    step(replace(ROW, noise=(1.0,)), state, output, noise)
    assert (x.max(), output.max(), noise.max()) == (3.0, 1.0, 0.5)
    assert state.xs == (x,)
    assert state.x0s == ()


def test_noise_has_to_be_there_exactly_when_the_row_asks() -> None:
    with pytest.raises(ValueError, match="noise"):
        step(ROW, begin(of(1.0)), of(1.0), of(1.0))
    with pytest.raises(ValueError, match="noise"):
        step(replace(ROW, noise=(0.0,)), begin(of(1.0)), of(1.0), None)


def test_a_row_that_reads_more_history_than_there_is_fails() -> None:
    with pytest.raises(ValueError, match="shorter"):
        step(replace(ROW, x0_mix=(1.0, 1.0)), begin(of(1.0)), of(1.0), None)


def test_a_row_of_zeros_gives_zeros() -> None:
    row = replace(ROW, c_skip=0.0, c_out=0.0, x_mix=(0.0,), x0_mix=())
    assert step(row, begin(of(4.0)), of(1.0), None).x.tolist() == of(0.0).tolist()
