"""Sockets of the kubelet: device plugins and pod resources. Only this package uses gRPC."""
