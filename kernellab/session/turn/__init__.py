"""One turn's work: the brief, the role's answer, the record."""
