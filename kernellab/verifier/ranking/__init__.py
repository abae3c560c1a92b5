"""Rankings: a quick look at many candidates, of which a verdict is asked only for the few that are worth it."""
