"""The words and options of the verbs; imported for every command."""
