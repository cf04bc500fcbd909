"""The edge to Kafka: reading batches, writing outcomes, keeping offsets."""
