"""The requests that ``tools/record_apiserver.py`` puts to a real kube-apiserver: one module per subject."""
