"""The admission webhooks' server: who is asked, by which certificate, and what it answers from."""
