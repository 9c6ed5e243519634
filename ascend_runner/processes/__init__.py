"""How the processes of a job are started, watched, signalled and reaped."""
