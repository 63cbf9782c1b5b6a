from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from ortist.bundle.graph_io import (
    ExternalTensor,
    Signature,
    parse_graph_facts,
    read_graph_facts,
)
from ortist.errors import BadBundle


def model(*, ir_version: int = 8, external: TensorProto | None = None) -> onnx.ModelProto:
    weight = external or numpy_helper.from_array(np.ones(3, np.float32), "weight")
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["sample", "weight"], ["sum"], name="add"),
            helper.make_node("Fused", ["sum"], ["out"], domain="com.microsoft"),
        ],
        "g",
        [
            helper.make_tensor_value_info("sample", TensorProto.FLOAT, ["batch", 4, None, 3]),
            helper.make_tensor_value_info("timestep", TensorProto.INT64, []),
            # IR 3 and older list initialisers as inputs, too.
            helper.make_tensor_value_info("weight", TensorProto.FLOAT, [3]),
        ],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT16, ["batch", "h * 8"])],
        [weight],
        doc_string="a note",
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)


def external(name: str, **entries: object) -> TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[3])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def facts_of(proto: onnx.ModelProto):
    data = proto.SerializeToString()
    return parse_graph_facts(data, len(data), Path("model.onnx"))


def test_what_a_graph_declares(tmp_path: Path) -> None:
    onnx.save(model(), tmp_path / "model.onnx")
    facts = read_graph_facts(tmp_path / "model.onnx")
    assert facts.inputs == {
        "sample": Signature("sample", "float32", ("batch", 4, None, 3)),
        "timestep": Signature("timestep", "int64", ()),
    }
    assert facts.outputs == {"out": Signature("out", "float16", ("batch", "h * 8"))}
    assert (facts.opset, facts.domains, facts.ir_version) == (17, ("com.microsoft",), 8)
    assert facts.external == ()


def test_where_weights_lie() -> None:
    facts = facts_of(model(external=external("weight", location="w.pb", offset=64, length=12)))
    assert facts.external == (ExternalTensor("weight", "w.pb", 64, 12),)
    facts = facts_of(model(external=external("weight", location="w.pb")))
    assert facts.external == (ExternalTensor("weight", "w.pb", 0, None),)


@pytest.mark.parametrize("entries", [{"offset": -1}, {"length": "many"}, {"offset": "1e3"}])
def test_a_place_that_is_no_number(entries: dict[str, object]) -> None:
    with pytest.raises(BadBundle, match="'weight' is given as"):
        facts_of(model(external=external("weight", location="w", **entries)))


def test_files_that_are_no_models(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with pytest.raises(BadBundle, match="is missing"):
        read_graph_facts(path)
    path.touch()
    with pytest.raises(BadBundle, match="is empty"):
        read_graph_facts(path)
    for data in (b"hello, world", b"\0" * 64, b"\xff" * 64, model().graph.SerializeToString()):
        path.write_bytes(data)
        with pytest.raises(BadBundle, match="is not a valid ONNX file"):
            read_graph_facts(path)
    with pytest.raises(BadBundle, match="cannot be read"):
        read_graph_facts(tmp_path)


@pytest.mark.parametrize("length", range(1, len(model().SerializeToString()), 7))
def test_a_model_cut_short_is_refused_or_complete_in_what_it_says(length: int) -> None:
    data = model().SerializeToString()[:length]
    with pytest.raises(BadBundle):
        parse_graph_facts(data, len(data), Path("model.onnx"))


names = st.text('aZ_./ "é\U0001f600', min_size=1, max_size=4)
dims = st.lists(st.one_of(st.integers(0, 2**62), names), max_size=4)
tensors = st.dictionaries(
    names, st.tuples(st.sampled_from([TensorProto.FLOAT, TensorProto.INT32]), dims), max_size=4
)


@settings(max_examples=30, deadline=None)
@given(
    inputs=tensors, outputs=tensors.filter(bool), ir=st.integers(3, 14), opset=st.integers(7, 28)
)
def test_it_agrees_with_onnx(
    inputs: dict[str, tuple[int, list[int | str]]],
    outputs: dict[str, tuple[int, list[int | str]]],
    ir: int,
    opset: int,
) -> None:
    def values(declared: dict[str, tuple[int, list[int | str]]]) -> list[onnx.ValueInfoProto]:
        return [
            helper.make_tensor_value_info(name, kind, shape)
            for name, (kind, shape) in declared.items()
        ]

    graph = helper.make_graph([], "g", values(inputs), values(outputs))
    ids = [helper.make_opsetid("", opset)]
    facts = facts_of(helper.make_model(graph, opset_imports=ids, ir_version=ir))
    kinds: dict[int, str] = {TensorProto.FLOAT: "float32", TensorProto.INT32: "int32"}
    for found, declared in ((facts.inputs, inputs), (facts.outputs, outputs)):
        assert found == {
            name: Signature(name, kinds[kind], tuple(shape))
            for name, (kind, shape) in declared.items()
        }
    assert (facts.ir_version, facts.opset) == (ir, opset)


@settings(max_examples=60, deadline=None)
@given(
    edits=st.lists(st.tuples(st.integers(0, 400), st.binary(min_size=1, max_size=4)), min_size=1)
)
def test_mangled_bytes_are_read_or_refused_never_anything_else(
    edits: list[tuple[int, bytes]],
) -> None:
    data = bytearray(model().SerializeToString())
    for position, replacement in edits:
        start = position % len(data)
        data[start : start + len(replacement)] = replacement
    try:
        facts = parse_graph_facts(bytes(data), len(data), Path("model.onnx"))
    except BadBundle as refusal:
        assert "model.onnx" in refusal.message
    else:
        assert facts.outputs
