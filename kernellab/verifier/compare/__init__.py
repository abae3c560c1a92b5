"""The error rule: is an output right?"""
