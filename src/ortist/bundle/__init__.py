"""Bundles: directories of ONNX graphs with all that running them takes; written, read, cached."""
