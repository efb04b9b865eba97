"""The review of demonstrations by people: signals of doubt, decisions, and the review page."""
