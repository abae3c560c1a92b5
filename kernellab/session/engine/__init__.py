"""Who acts next and when: the engine thread, the driver of one session, the steps and decisions."""
