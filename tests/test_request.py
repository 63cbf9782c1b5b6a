from __future__ import annotations

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
        ({"prompt": 3}, "prompt is 3"),
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
