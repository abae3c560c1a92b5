"""A session without a front end: text, static HTML, figures."""
