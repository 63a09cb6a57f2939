"""WHERE RECORDS LIVE: counting them on this machine or a cluster, and the workers there."""
