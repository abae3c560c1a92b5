"""The arguments of a reference: places of a call's values, listed cases, recorded and stored values."""
