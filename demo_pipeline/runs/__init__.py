"""What has to be built, and building it: stages, worker processes, quarantine, discovery."""
