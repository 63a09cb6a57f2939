"""WHERE RECORDS LIVE: this machine, or a cluster."""
