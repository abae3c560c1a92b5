"""The magics: a person's words for what a session does."""
