import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Properties;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.management.OperatingSystemMXBean;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The job "load" of benchmarks/driver.py with the Java client; a job is a line of JSON. Ends with stdin. */
public class Driver {
    static final ObjectMapper JSON = new ObjectMapper();
    static final OperatingSystemMXBean PROCESS =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    long delivered; // written by the producer's thread, read when that has ended

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // a logger's line must not land between two answers
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(new Driver().load(JSON.readTree(line))));
            out.flush();
        }
    }

    Map<String, Long> load(JsonNode job) throws Exception {
        String topic = job.get("topic").asText();
        int records = job.get("records").asInt();
        byte[][] keys = column(job.get("rows"), 0);
        byte[][] values = column(job.get("rows"), 1);
        Callback count = (metadata, error) -> {
            if (error == null) {
                delivered++;
            }
        };
        ByteArraySerializer bytes = new ByteArraySerializer();
        long elapsed;
        long cpu;
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings(job), bytes, bytes)) {
            producer.send(new ProducerRecord<>(topic, "first".getBytes(), new byte[0])).get();
            long start = System.nanoTime();
            long startCpu = PROCESS.getProcessCpuTime();
            for (int i = 0; i < records; i++) {
                int row = i % keys.length;
                producer.send(new ProducerRecord<>(topic, keys[row], values[row]), count);
            }
            producer.flush();
            elapsed = System.nanoTime() - start;
            cpu = PROCESS.getProcessCpuTime() - startCpu;
        }
        return Map.of("elapsed_ns", elapsed, "cpu_ns", cpu, "delivered", delivered);
    }

    static Properties settings(JsonNode job) {
        Properties properties = new Properties();
        job.get("settings").properties().forEach(s -> properties.put(s.getKey(), s.getValue().asText()));
        return properties;
    }

    static byte[][] column(JsonNode rows, int number) {
        byte[][] column = new byte[rows.size()][];
        for (int i = 0; i < column.length; i++) {
            column[i] = rows.get(i).get(number).asText().getBytes(StandardCharsets.UTF_8);
        }
        return column;
    }
}
