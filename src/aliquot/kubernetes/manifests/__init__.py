"""Manifests of a cluster as plain objects, from which ``deploy/kubernetes`` and the chart are generated."""
