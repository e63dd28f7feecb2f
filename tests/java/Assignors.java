import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Scanner;
import java.util.Set;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Kafka's assignors behind a pipe: a line of JSON in, a line of JSON out; byte strings are Base64. The other side
 * is tests/oracle/java_assignors.py.
 */
public class Assignors {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        Scanner in = new Scanner(System.in, "UTF-8");
        while (in.hasNextLine()) {
            JsonNode request = JSON.readTree(in.nextLine());
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                ConsumerPartitionAssignor assignor = (ConsumerPartitionAssignor) Class.forName(
                    "org.apache.kafka.clients.consumer." + request.get("class").asText())
                    .getDeclaredConstructor().newInstance();
                answer.put("name", assignor.name());
                if (request.has("members"))
                    answer.put("assignment", assign(assignor, request));
                else
                    answer.put("subscription", subscription(assignor, request));
            } catch (RuntimeException error) {
                answer.put("error", error.toString());
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }

    /** What the leader sends to each member, from what it got of each. */
    static Map<String, Object> assign(ConsumerPartitionAssignor assignor, JsonNode request) throws Exception {
        Map<String, Subscription> members = new HashMap<>();
        for (JsonNode member : request.get("members")) {
            Subscription subscription =
                ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(member.get("metadata").binaryValue()));
            subscription.setGroupInstanceId(Optional.ofNullable(member.get("instance").textValue()));
            members.put(member.get("id").asText(), subscription);
        }
        Map<String, Object> assignments = new LinkedHashMap<>();
        assignor.assign(cluster(request.get("topics")), new GroupSubscription(members)).groupAssignment()
            .forEach((member, assignment) ->
                assignments.put(member, base64(ConsumerProtocol.serializeAssignment(assignment))));
        return assignments;
    }

    static Cluster cluster(JsonNode topics) {
        Map<String, Node> nodes = new HashMap<>();
        List<PartitionInfo> partitions = new ArrayList<>();
        topics.fields().forEachRemaining(topic -> {
            for (JsonNode racks : topic.getValue()) {
                List<Node> replicas = new ArrayList<>();
                racks.forEach(rack -> replicas.add(nodes.computeIfAbsent(
                    rack.asText(), name -> new Node(nodes.size(), "host", 9092, name))));
                Node[] array = replicas.toArray(new Node[0]);
                int number = (int) partitions.stream().filter(p -> p.topic().equals(topic.getKey())).count();
                partitions.add(new PartitionInfo(topic.getKey(), number, null, array, array));
            }
        });
        return new Cluster("id", nodes.values(), partitions, Set.of(), Set.of());
    }

    /** What a member sends when it joins, after it was assigned partitions in a generation. */
    static String subscription(ConsumerPartitionAssignor assignor, JsonNode request) {
        List<String> topics = new ArrayList<>();
        request.get("topics").forEach(topic -> topics.add(topic.asText()));
        List<TopicPartition> owned = partitions(request.get("owned"));
        int generation = request.get("generation").asInt();
        if (request.has("last"))
            assignor.onAssignment(new Assignment(partitions(request.get("last"))),
                new ConsumerGroupMetadata("group", generation, "member", Optional.empty()));
        ByteBuffer userData = assignor.subscriptionUserData(Set.copyOf(topics));
        Optional<String> rack = Optional.ofNullable(request.get("rack").textValue());
        return base64(ConsumerProtocol.serializeSubscription(
            new Subscription(topics, userData, owned, generation, rack)));
    }

    static List<TopicPartition> partitions(JsonNode pairs) {
        List<TopicPartition> partitions = new ArrayList<>();
        pairs.forEach(pair -> partitions.add(new TopicPartition(pair.get(0).asText(), pair.get(1).asInt())));
        return partitions;
    }

    static String base64(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return Base64.getEncoder().encodeToString(bytes);
    }
}
