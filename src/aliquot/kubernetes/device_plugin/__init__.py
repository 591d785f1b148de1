"""Kubelet's sockets: device plugins and pod resources. The only package that speaks gRPC."""
