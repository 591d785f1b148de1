"""Who may come in, and what a browser may be made to do: tokens, sessions, forged requests, headers, limits."""
