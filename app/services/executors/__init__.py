"""What a failover executor asks."""
