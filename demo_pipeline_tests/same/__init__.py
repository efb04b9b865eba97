"""What people see of the project, as hashes: `make same` says whether it is as before."""
