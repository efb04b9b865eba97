"""The Training Gym recording: meta.json and input_log.jsonl."""
