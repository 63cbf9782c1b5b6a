"""ONNX graphs built from a component's config and its weights' names, without tracing."""
