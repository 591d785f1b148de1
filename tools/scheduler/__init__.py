"""The cases that ``tools/record_scheduler.py`` puts to a real kube-scheduler."""
