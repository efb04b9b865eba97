"""The fault suite: what happens to the real command line when processes, disks and networks fail.

`make faults` runs the long form and prints a table; a small part is in the test suite
(test_faults.py, test_bad_uploads.py).

A case starts from a copy of one store in which a demonstration is done; its upload was replaced
since, and a second one arrived. The command line is disturbed, then run once more without any
disturbance. Checked are:

- the public state while disturbed: every output is whole, and is the old or the new one;
- the state after the last run: byte for byte that of a run that nothing disturbed;
- the queue: no run of the Dagster instance is unfinished;
- leftovers: after `prune`, the store has as many files as after an undisturbed run and `prune`;
- nobody is blamed: no quarantine record, no traceback.

`injection.py` counts the calls of a process that change files, and kills the process or fails the
calls; `commands.py` runs the command line in forked processes, so that a case does not pay for the
imports; `states.py` compares; `scenarios.py` has the cases on a disk, `daemon.py` those beside the
daemon, `network.py` those behind `proxy.py`, `bad_uploads.py` 60 bad uploads beside good ones. What
SQLite and Arrow write in C is not counted: kills at random moments cover it.
"""
