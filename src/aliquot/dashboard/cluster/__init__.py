"""The source for a Kubernetes cluster: looks by watches, asks as patches with the person's own rights."""
