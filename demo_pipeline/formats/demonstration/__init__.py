"""The Training Gym recording: meta.json and the events of input_log.jsonl."""
