"""What the hand did: raw input repaired, segmented into actions, every event accounted for."""
