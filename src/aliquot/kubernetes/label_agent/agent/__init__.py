"""Label agent of a node: a level-triggered loop over plan, apply and verify."""
