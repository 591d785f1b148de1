"""The node agent: one level-triggered loop over plan, apply and verify."""
