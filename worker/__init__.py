"""A stream-processing worker: text events from one Kafka topic become chat messages on another (MEM-16).

The map, in the order an event meets it:

    cli.py, __main__.py    the commands
    settings.py, kinds.py  one table of settings: name, default, help, check
    process.py             the life of the process: start, watch, stop, exit code
    check.py, explain.py, dead_letters_cli.py, convert.py, demo/    what the other commands do
    app.py                 the Faust app and its one agent: a batch in, outcomes, deliver
    kafka/                 the edge
      connection.py        settings to what every client takes
      topics.py            what the topics are: create, compare, limits
      transport.py         one Faust message is one fetched batch of one partition
      records.py           fetched batches as they are; the one reach into the fetcher
      odd_names.py         header names that are not UTF-8
      positions.py         where a partition starts, and what to say when its offset is gone
      lane.py              one input partition's way through: accepted, written, confirmed, in order
      delivery.py          what both guarantees share: assign, hand over, give up
      at_least_once.py     store, then commit
      transaction.py       exactly once: one transactional producer per input partition
      writer.py            outcomes to record batches, batches to the broker
      dead_letters.py      build a dead letter
      reach.py, rights.py  one connection, and why there is none; the rights without which nothing goes (oauth.py)
      cluster.py           what ``check`` asks a cluster (protocol.py); verdicts.py: what it thinks of the answers
      reader.py            a bounded look at a topic, without a group
      replay.py            dead letters sent back (letters.py: read back; replayed.py: what was sent)
      throwaway.py         a real Kafka for the demo and the tests (jars.py, ports.py, watchdog.py; interrupts.py above)
    rule/                  pure: no Kafka, no asyncio, no clock, no logging
      event.py             a record's value to an event, or a reason it is none (lexemes.py keeps digits)
      content.py           any JSON value to text
      message.py           MEM-16: event to message, or the reason it is dropped
      outcome.py           a batch of records to outcomes; the line that decides an event's fate
    observe/               metrics, health, HTTP, logs, traces

Imports point one way: ``rule`` < ``kafka`` < ``app`` < ``cli``.
"""

__version__ = "0.1.0"
