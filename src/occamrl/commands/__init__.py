"""What the commands of the command line do, one file each; the options are read in :mod:`occamrl.cli`."""
