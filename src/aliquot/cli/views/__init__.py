"""Tables and tickets of single verbs."""
