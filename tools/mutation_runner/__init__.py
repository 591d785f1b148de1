"""Draw wrong programs, find the tests that execute what is wrong, and try them."""
