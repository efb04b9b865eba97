"""The review of demonstrations by people: doubt signals, decisions, and the review page."""
