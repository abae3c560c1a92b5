"""The course: lessons' exercises and their hints, the practice ground, and what a learner has reached.

An exercise is data (``notebooks/exercises/*.toml``), so that a lesson is added without code. Answers are judged by the
sketch gate and the Verifier, as everybody's; the room only chooses what to ask of them and what to say.
"""
