"""The fault suite: tests the real command line while processes, disks and networks fail.

`make faults` runs the long version and prints a table. A small part is in the test suite
(test_faults.py, test_bad_uploads.py).

Each case starts from a copy of the same store. One demonstration was processed, its upload was
replaced afterwards, and a second upload arrived. The command line runs with a disturbance, and then
once more without any disturbance. The suite checks:

- the public state after the disturbance: each output is complete, and is the old or the new one;
- the state after the last run: it equals the state after an undisturbed run, byte for byte;
- the queue: no run of the Dagster instance is unfinished;
- leftovers: after `prune`, the store has as many files as after an undisturbed run and `prune`;
- blame: there is no quarantine record and no traceback.

The modules:

- `injection.py` counts the calls of a process that change files, and kills the process or makes
  the calls fail. Writes in the C code of SQLite and Arrow are not counted; kills at random moments
  cover them.
- `commands.py` runs the command line in forked processes, so that modules are imported only once.
- `states.py` compares states.
- `scenarios.py` contains the cases on a disk, `daemon.py` the cases beside a daemon, `network.py`
  the cases behind `proxy.py`, and `bad_uploads.py` 60 bad uploads beside good ones.
"""
