"""Opening and running ONNX graphs."""
