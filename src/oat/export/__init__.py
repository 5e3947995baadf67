"""Policies as ONNX graphs or compiled modules, and what runs them."""
