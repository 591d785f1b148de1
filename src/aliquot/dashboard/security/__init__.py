"""Authentication and browser security: tokens, sessions, CSRF protection, headers, rate limits."""
