"""What a session keeps: events, their journal, the state folded from them, and its views."""
