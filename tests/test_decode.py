from __future__ import annotations

import numpy as np

from ortist.decode import to_uint8


def test_minus_one_is_black_one_is_white_and_outside_is_clipped() -> None:
    pixels = np.zeros((3, 1, 4), np.float32)
    pixels[:] = np.asarray([-1.5, -1.0, 0.0, 7.0], np.float32)
    assert to_uint8(pixels)[0, :, 0].tolist() == [0, 0, 128, 255]


def test_channels_go_last() -> None:
    pixels = np.full((3, 2, 5), -1.0, np.float32)
    pixels[1] = 1.0
    picture = to_uint8(pixels)
    assert picture.shape == (2, 5, 3)
    assert picture[0, 0].tolist() == [0, 255, 0]
