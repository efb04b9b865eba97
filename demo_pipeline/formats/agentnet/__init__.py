"""Tasks of AgentNet: one line a trajectory, each action as pyautogui code."""
