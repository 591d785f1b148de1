"""The source for a Kubernetes cluster: watches for reading, patches with the user's own permissions for changes."""
