import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;

/**
 * The same work as a Kafka Streams application with one thread: bytes in, Jackson, bytes out. Key, headers and
 * timestamp are forwarded by Streams itself; the partition follows from the key, as it did for the input.
 *
 * Arguments: brokers, application id, input topic, output topic, processing guarantee.
 */
public final class TextToMessage implements Processor<byte[], byte[], byte[], byte[]> {
    private static final Set<String> ROLES = Set.of("user", "assistant", "system", "tool");

    private final ObjectMapper json = new ObjectMapper();
    private ProcessorContext<byte[], byte[]> context;

    @Override
    public void init(ProcessorContext<byte[], byte[]> context) {
        this.context = context;
    }

    @Override
    public void process(Record<byte[], byte[]> record) {
        byte[] message = convert(record.value());
        if (message != null) {
            context.forward(record.withValue(message));
        }
    }

    private byte[] convert(byte[] value) {
        try {
            JsonNode event = json.readTree(value);
            String text = event.path("text").asText("");
            if (text.isEmpty()) {
                return null;
            }
            String role = event.path("role").asText("user");
            ObjectNode message = json.createObjectNode();
            message.put("role", ROLES.contains(role) ? role : "user").put("content", text);
            if (role.equals("tool") && event.hasNonNull("tool_call_id")) {
                message.put("tool_call_id", event.get("tool_call_id").asText().trim());
            }
            ObjectNode both = json.createObjectNode();
            both.putArray("messages").add(message);
            both.set("message", message);
            return json.writeValueAsBytes(both);
        } catch (JsonProcessingException error) {
            return null; // the benchmark compares plain events; a dead-letter topic is the worker's own business
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, arguments[4]);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 1000);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, System.getProperty("java.io.tmpdir") + "/" + arguments[1]);
        // As a person would tune it: more records a poll, batches that fill.
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        settings.put(StreamsConfig.consumerPrefix("max.poll.records"), 5000);
        settings.put(StreamsConfig.producerPrefix("acks"), "all");
        settings.put(StreamsConfig.producerPrefix("linger.ms"), 20);
        settings.put(StreamsConfig.producerPrefix("batch.size"), 500_000);

        Topology topology = new Topology();
        topology.addSource("events", arguments[2]);
        topology.addProcessor("rule", TextToMessage::new, "events");
        topology.addSink("messages", arguments[3], "rule");
        KafkaStreams streams = new KafkaStreams(topology, settings);
        CountDownLatch end = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close();
            end.countDown();
        }));
        streams.start();
        end.await();
    }
}
