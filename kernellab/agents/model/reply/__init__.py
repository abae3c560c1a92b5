"""Reads code, edits, sketches, JSON and claims from the reply of a model, or of a person who pasted one.

Nothing is guessed: a reply without the requested content raises AnswerError, whose message returns to its author.
"""
