"""People's judgement of demonstrations: figures of doubt, decisions, and the page for both."""
