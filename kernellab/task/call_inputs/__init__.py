"""What a reference is called with: the places of a call's values, listed cases, values from elsewhere."""
