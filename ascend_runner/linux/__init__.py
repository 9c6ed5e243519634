"""The Linux shell: thin modules, one kernel subject each. No policy: who is signalled, and when, is decided below."""
