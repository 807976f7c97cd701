"""What readers get: ops, records, conversations, the state now and in the past."""
