"""The part of the DRA driver that kubelet talks to: registration, claims, health, and CDI documents of claims."""
