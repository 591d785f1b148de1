"""Layouts that nodes may have, as features or as cloud nodes."""
