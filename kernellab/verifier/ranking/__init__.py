"""Rankings: a quick look at many candidates; only the few best ones then get a verdict."""
