"""Where things lie: uploads that arrive, outputs committed whole, quarantine."""
