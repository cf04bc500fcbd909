"""The rule, pure: a record's value in, an outcome out. No Kafka, no asyncio, no clock, no logging."""
