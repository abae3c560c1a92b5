"""Which of a candidate's own code the checked calls never ran, and inputs that reach it."""
