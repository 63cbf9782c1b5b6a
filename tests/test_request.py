from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortist.errors import BadRequest
from ortist.request import Request

requests = st.builds(
    Request,
    prompt=st.text(),
    negative_prompt=st.none() | st.text(),
    num_inference_steps=st.none() | st.integers(),
    guidance_scale=st.none() | st.floats(allow_nan=False),
    sampler=st.none() | st.text(),
    seed=st.none() | st.integers(0, 2**64 - 1),
    num_images_per_prompt=st.integers(),
)


@given(requests)
def test_a_request_comes_back_from_its_json(request: Request) -> None:
    assert Request.from_json(request.to_json()).to_json() == request.to_json()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"prompt": "x", "stepz": 3}, "stepz"),
        ({"prompt": 3}, "prompt is 3 (a int)"),
        ({"prompt": ["a", "b"]}, "prompt is ['a', 'b'] (a list)"),
        ({"prompt": None}, "prompt is None"),
        ({"prompt": "x", "width": 128.0}, "width is 128.0"),
        ({"prompt": "x", "guidance_scale": "7"}, "guidance_scale is '7'"),
        ({"prompt": "x", "sampler": 3}, "sampler is 3"),
        ({"prompt": "x", "seed": "7"}, "seed is '7'"),
        ({"prompt": "x", "seed": True}, "seed is True"),
        ({"prompt": "x", "num_images_per_prompt": None}, "num_images_per_prompt is None"),
        ({"seed": 1}, "no prompt"),
    ],
)
def test_a_field_that_is_unknown_or_of_the_wrong_kind_is_named(data, words) -> None:
    with pytest.raises(BadRequest) as caught:
        Request.from_json(data)
    assert words in caught.value.message
    assert caught.value.hint


def test_numbers_of_numpy_become_pythons_own() -> None:
    request = Request("x", seed=np.int64(7), guidance_scale=np.float32(3), width=np.uint16(64))  # pyright: ignore[reportArgumentType]
    assert json.loads(json.dumps(request.to_json()))["seed"] == 7
    assert type(request.guidance_scale) is float


def test_latents_that_are_no_array_are_refused() -> None:
    with pytest.raises(BadRequest, match="latents is a list"):
        Request("x", latents=[[1.0]])  # pyright: ignore[reportArgumentType]
