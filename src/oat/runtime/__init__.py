"""Policies on robots: exported to ONNX, served over a socket, driving a robot."""
