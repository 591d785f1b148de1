"""Scheduler extender: it rates the nodes that kube-scheduler may choose, and hides none."""
