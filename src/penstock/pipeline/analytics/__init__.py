"""Tables computed from the lake: attempts, metrics, backlog, consumers, triage, anomalies."""
