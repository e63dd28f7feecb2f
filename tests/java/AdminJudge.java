import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.function.Function;
import java.util.stream.Collectors;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RaftVoterEndpoint;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.admin.UserScramCredentialAlteration;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.utils.SecurityUtils;

/**
 * Calls of Java's Admin, a line of JSON each until an empty one: prints for each call {item: {"result": ...} or
 * {"code": the error's}}. Java's own refusals, which no broker made, have the code -1. The other side is
 * tests/oracle/java_admin.py.
 */
class AdminJudge {
    interface Call {
        Map<String, Object> answer(Admin admin, JsonNode arguments) throws Exception;
    }

    static final Map<String, Call> CALLS = new HashMap<>();

    static {
        topics();
        configs();
        partitions();
        groups();
        sharesAndStreams();
        access();
        transactions();
        cluster();
    }

    static void run(JsonNode job) throws Exception {
        try (Admin admin = Admin.create(Clients.properties(job))) {
            Clients.print("open");
            for (String line = Clients.IN.readLine(); line != null && !line.isEmpty(); line = Clients.IN.readLine()) {
                JsonNode arguments = Clients.JSON.readTree(line);
                Clients.print(CALLS.get(arguments.get("call").asText()).answer(admin, arguments));
            }
        }
    }

    static void topics() {
        CALLS.put("createTopics", (admin, a) -> each(admin.createTopics(
            list(a.get("topics"), AdminJudge::newTopic),
            new CreateTopicsOptions().validateOnly(a.path("validate_only").asBoolean())).values(), done -> null));
        CALLS.put("deleteTopics", (admin, a) ->
            each(admin.deleteTopics(Clients.texts(a.get("topics"))).topicNameValues(), done -> null));
        CALLS.put("createPartitions", (admin, a) ->
            each(admin.createPartitions(map(a.get("topics"), name -> name, AdminJudge::newPartitions)).values(),
                done -> null));
        CALLS.put("describeTopics", (admin, a) ->
            each(admin.describeTopics(Clients.texts(a.get("topics"))).topicNameValues(), AdminJudge::topic));
        CALLS.put("deleteRecords", (admin, a) -> each(admin.deleteRecords(
            map(a.get("offsets"), AdminJudge::partition, offset -> RecordsToDelete.beforeOffset(offset.asLong())))
            .lowWatermarks(), low -> low.lowWatermark()));
        CALLS.put("listOffsets", (admin, a) -> {
            Map<TopicPartition, OffsetSpec> specs = map(a.get("specs"), AdminJudge::partition, AdminJudge::spec);
            var found = admin.listOffsets(specs);
            return each(futures(specs.keySet(), found::partitionResult), offset -> offset.offset());
        });
        CALLS.put("describeProducers", (admin, a) -> {
            Set<TopicPartition> partitions = partitions(a.get("partitions"));
            var found = admin.describeProducers(partitions);
            return each(futures(partitions, found::partitionResult), state -> AdminCalls.list(
                state.activeProducers(), each -> List.of(each.producerEpoch(), each.lastSequence())));
        });
    }

    static void configs() {
        CALLS.put("incrementalAlterConfigs", (admin, a) -> each(admin.incrementalAlterConfigs(
            map(a.get("changes"), AdminJudge::resource, AdminJudge::ops)).values(), done -> null));
        CALLS.put("describeConfigs", (admin, a) -> each(admin.describeConfigs(
            list(a.get("resources"), each -> resource(each.asText()))).values(), found -> {
                Map<String, String> changed = new TreeMap<>();
                found.entries().stream().filter(each -> each.source().name().startsWith("DYNAMIC"))
                    .forEach(each -> changed.put(each.name(), each.value()));
                return changed;
            }));
    }

    static void partitions() {
        CALLS.put("electLeaders", (admin, a) -> {
            ElectionType type = a.path("unclean").asBoolean() ? ElectionType.UNCLEAN : ElectionType.PREFERRED;
            Map<String, Object> items = new TreeMap<>();
            admin.electLeaders(type, partitions(a.get("partitions"))).partitions().get().forEach((partition, error) ->
                items.put(partition.toString(), error.map(AdminJudge::refusal).orElse(result(null))));
            return items;
        });
        CALLS.put("alterPartitionReassignments", (admin, a) -> each(admin.alterPartitionReassignments(
            map(a.get("replicas"), AdminJudge::partition, AdminJudge::reassignment)).values(), done -> null));
        CALLS.put("listPartitionReassignments", (admin, a) -> all(
            admin.listPartitionReassignments(partitions(a.get("partitions"))).reassignments(), each ->
                List.of(each.replicas(), each.addingReplicas(), each.removingReplicas())));
        CALLS.put("describeLogDirs", (admin, a) -> each(
            admin.describeLogDirs(list(a.get("brokers"), JsonNode::asInt)).descriptions(), dirs ->
                dirs.keySet().stream().sorted().toList()));
        CALLS.put("alterReplicaLogDirs", (admin, a) -> each(
            admin.alterReplicaLogDirs(map(a.get("moves"), AdminJudge::replica, JsonNode::asText)).values(),
            AdminJudge::name, done -> null));
        CALLS.put("describeReplicaLogDirs", (admin, a) -> each(
            admin.describeReplicaLogDirs(list(a.get("replicas"), each -> replica(each.asText()))).values(),
            AdminJudge::name, found -> Arrays.asList(
                found.getCurrentReplicaLogDir(), found.getFutureReplicaLogDir())));
    }

    static void groups() {
        CALLS.put("listGroups", (admin, a) -> {
            Map<String, Object> items = new TreeMap<>();
            for (var group : admin.listGroups().all().get()) {
                if (isOf(a, group.groupId())) {
                    items.put(group.groupId(), result(List.of(
                        group.type().get().toString(), group.groupState().get().toString())));
                }
            }
            return items;
        });
        CALLS.put("listConsumerGroupOffsets", (admin, a) -> all(
            admin.listConsumerGroupOffsets(a.get("group").asText()).partitionsToOffsetAndMetadata(),
            offset -> offset == null ? null : List.of(offset.offset(), offset.metadata())));
        CALLS.put("alterConsumerGroupOffsets", (admin, a) -> {
            Map<TopicPartition, OffsetAndMetadata> offsets = map(a.get("offsets"), AdminJudge::partition, each ->
                each.isArray() ? new OffsetAndMetadata(each.get(0).asLong(), each.get(1).asText())
                    : new OffsetAndMetadata(each.asLong()));
            var done = admin.alterConsumerGroupOffsets(a.get("group").asText(), offsets);
            return each(futures(offsets.keySet(), done::partitionResult), nothing -> null);
        });
        CALLS.put("deleteConsumerGroupOffsets", (admin, a) -> {
            Set<TopicPartition> partitions = partitions(a.get("partitions"));
            var done = admin.deleteConsumerGroupOffsets(a.get("group").asText(), partitions);
            return each(futures(partitions, done::partitionResult), nothing -> null);
        });
        CALLS.put("deleteConsumerGroups", (admin, a) ->
            each(admin.deleteConsumerGroups(Clients.texts(a.get("groups"))).deletedGroups(), done -> null));
        CALLS.put("removeMembersFromConsumerGroup", (admin, a) -> {
            List<MemberToRemove> members = list(a.get("instances"), each -> new MemberToRemove(each.asText()));
            var done = admin.removeMembersFromConsumerGroup(
                a.get("group").asText(), new RemoveMembersFromConsumerGroupOptions(members));
            Map<String, KafkaFuture<Void>> futures = new LinkedHashMap<>();
            members.forEach(each -> futures.put(each.groupInstanceId(), done.memberResult(each)));
            return each(futures, nothing -> null);
        });
    }

    static void sharesAndStreams() {
        CALLS.put("alterShareGroupOffsets", (admin, a) -> {
            Map<TopicPartition, Long> offsets = map(a.get("offsets"), AdminJudge::partition, JsonNode::asLong);
            var done = admin.alterShareGroupOffsets(a.get("group").asText(), offsets);
            return each(futures(offsets.keySet(), done::partitionResult), nothing -> null);
        });
        CALLS.put("listShareGroupOffsets", (admin, a) -> {
            String group = a.get("group").asText();
            return all(admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
                .partitionsToOffsetInfo(group), each -> each == null ? null : each.startOffset());
        });
        CALLS.put("deleteShareGroupOffsets", (admin, a) -> {
            Set<String> topics = new LinkedHashSet<>(Clients.texts(a.get("topics")));
            var done = admin.deleteShareGroupOffsets(a.get("group").asText(), topics);
            return each(futures(topics, done::topicResult), nothing -> null);
        });
        CALLS.put("describeShareGroups", (admin, a) ->
            each(admin.describeShareGroups(Clients.texts(a.get("groups"))).describedGroups(), group ->
                group.groupState().toString()));
        CALLS.put("deleteShareGroups", (admin, a) ->
            each(admin.deleteShareGroups(Clients.texts(a.get("groups"))).deletedGroups(), done -> null));
        CALLS.put("describeStreamsGroups", (admin, a) ->
            each(admin.describeStreamsGroups(Clients.texts(a.get("groups"))).describedGroups(), group ->
                group.groupState().toString()));
        CALLS.put("deleteStreamsGroups", (admin, a) ->
            each(admin.deleteStreamsGroups(Clients.texts(a.get("groups"))).deletedGroups(), done -> null));
        CALLS.put("alterStreamsGroupOffsets", (admin, a) -> {
            Map<TopicPartition, OffsetAndMetadata> offsets =
                map(a.get("offsets"), AdminJudge::partition, each -> new OffsetAndMetadata(each.asLong()));
            var done = admin.alterStreamsGroupOffsets(a.get("group").asText(), offsets);
            return each(futures(offsets.keySet(), done::partitionResult), nothing -> null);
        });
    }

    static void access() {
        CALLS.put("createAcls", (admin, a) ->
            each(
            admin.createAcls(list(a.get("acls"), AdminJudge::binding)).values(), AdminJudge::text, done -> null));
        CALLS.put("describeAcls", (admin, a) -> one(admin.describeAcls(filter(a.get("filter"))).values(), found ->
            found.stream().map(AdminJudge::text).sorted().toList()));
        CALLS.put("deleteAcls", (admin, a) -> one(
            admin.deleteAcls(List.of(filter(a.get("filter")))).all(), found ->
                found.stream().map(AdminJudge::text).sorted().toList()));
        CALLS.put("alterClientQuotas", (admin, a) -> each(admin.alterClientQuotas(
            list(a.get("changes"), AdminJudge::quotas)).values(), AdminJudge::text, done -> null));
        CALLS.put("describeClientQuotas", (admin, a) -> {
            Map<String, Object> items = new TreeMap<>();
            String user = a.get("user").asText();
            admin.describeClientQuotas(ClientQuotaFilter.contains(
                List.of(ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.USER, user)))).entities().get()
                .forEach((entity, values) -> items.put(text(entity), result(new TreeMap<>(values))));
            return items;
        });
        CALLS.put("alterUserScramCredentials", (admin, a) -> each(admin.alterUserScramCredentials(
            list(a.get("changes"), AdminJudge::credential)).values(), done -> null));
        CALLS.put("describeUserScramCredentials", (admin, a) -> {
            List<String> users = Clients.texts(a.get("users"));
            var found = admin.describeUserScramCredentials(users);
            return each(futures(users, found::description), user -> user.credentialInfos().stream().map(each ->
                each.mechanism().mechanismName() + " " + each.iterations()).sorted().toList());
        });
        CALLS.put("createDelegationToken", (admin, a) ->
            one(admin.createDelegationToken().delegationToken(), token -> null));
        CALLS.put("describeDelegationToken", (admin, a) ->
            one(admin.describeDelegationToken().delegationTokens(), List::size));
    }

    static void transactions() {
        CALLS.put("describeTransactions", (admin, a) -> {
            List<String> ids = Clients.texts(a.get("ids"));
            var found = admin.describeTransactions(ids);
            return each(futures(ids, found::description), each -> each.state().toString());
        });
        CALLS.put("listTransactions", (admin, a) -> {
            Map<String, Object> items = new TreeMap<>();
            admin.listTransactions().all().get().stream().filter(each -> isOf(a, each.transactionalId()))
                .forEach(each -> items.put(each.transactionalId(), result(each.state().toString())));
            return items;
        });
        CALLS.put("fenceProducers", (admin, a) ->
            each(admin.fenceProducers(Clients.texts(a.get("ids"))).fencedProducers(), done -> null));
        CALLS.put("forceTerminateTransaction", (admin, a) ->
            one(admin.forceTerminateTransaction(a.get("id").asText()).result(), done -> null));
    }

    static void cluster() {
        CALLS.put("describeFeatures", (admin, a) -> one(admin.describeFeatures().featureMetadata(), found -> {
            Map<String, Object> levels = new TreeMap<>();
            found.finalizedFeatures().forEach((name, range) -> levels.put(name, range.maxVersionLevel()));
            return levels;
        }));
        CALLS.put("updateFeatures", (admin, a) -> each(admin.updateFeatures(
            map(a.get("levels"), name -> name, level -> new FeatureUpdate((short) level.asInt(),
                FeatureUpdate.UpgradeType.valueOf(a.path("kind").asText("UPGRADE")))),
            new UpdateFeaturesOptions().validateOnly(a.path("validate_only").asBoolean())).values(), done -> null));
        CALLS.put("describeMetadataQuorum", (admin, a) -> one(admin.describeMetadataQuorum().quorumInfo(), found ->
            List.of(found.leaderId(), AdminCalls.list(found.voters(), each -> each.replicaId()))));
        CALLS.put("unregisterBroker", (admin, a) ->
            one(admin.unregisterBroker(a.get("broker").asInt()).all(), done -> null));
        CALLS.put("addRaftVoter", (admin, a) -> one(admin.addRaftVoter(a.get("voter").asInt(), Uuid.ONE_UUID,
            Set.of(new RaftVoterEndpoint("CONTROLLER", "localhost", 1234))).all(), done -> null));
        CALLS.put("removeRaftVoter", (admin, a) ->
            one(admin.removeRaftVoter(a.get("voter").asInt(), Uuid.ONE_UUID).all(), done -> null));
    }

    // Arguments

    /** True for a name of the client that the call is for: lists have those of all. */
    static boolean isOf(JsonNode arguments, String name) {
        return name.startsWith(arguments.get("prefix").asText());
    }

    static NewTopic newTopic(JsonNode topic) {
        String name = topic.get("name").asText();
        if (topic.has("assignment")) {
            return new NewTopic(name, map(topic.get("assignment"), Integer::parseInt, AdminJudge::ids));
        }
        Optional<Integer> partitions = number(topic, "partitions");
        Optional<Short> replicas = number(topic, "replication_factor").map(Integer::shortValue);
        return new NewTopic(name, partitions, replicas).configs(map(topic.path("configs"), key -> key, JsonNode::asText));
    }

    static Optional<Integer> number(JsonNode node, String key) {
        return node.has(key) ? Optional.of(node.get(key).asInt()) : Optional.empty();
    }

    static NewPartitions newPartitions(JsonNode wanted) {
        return wanted.isInt() ? NewPartitions.increaseTo(wanted.asInt())
            : NewPartitions.increaseTo(wanted.get(0).asInt(), list(wanted.get(1), AdminJudge::ids));
    }

    static OffsetSpec spec(JsonNode at) {
        return switch (at.asText()) {
            case "earliest" -> OffsetSpec.earliest();
            case "latest" -> OffsetSpec.latest();
            case "max_timestamp" -> OffsetSpec.maxTimestamp();
            default -> OffsetSpec.forTimestamp(at.asLong());
        };
    }

    /** "kind:name". */
    static ConfigResource resource(String text) {
        String[] parts = text.split(":", 2);
        return new ConfigResource(ConfigResource.Type.valueOf(parts[0].toUpperCase()), parts[1]);
    }

    static Collection<AlterConfigOp> ops(JsonNode changes) {
        return list(changes, each -> new AlterConfigOp(
            new ConfigEntry(each.get(1).asText(), each.path(2).isTextual() ? each.get(2).asText() : null),
            AlterConfigOp.OpType.valueOf(each.get(0).asText().toUpperCase())));
    }

    static Optional<NewPartitionReassignment> reassignment(JsonNode brokers) {
        return brokers.isNull() ? Optional.empty() : Optional.of(new NewPartitionReassignment(ids(brokers)));
    }

    static AclBinding binding(JsonNode acl) {
        return new AclBinding(
            new ResourcePattern(
                ResourceType.fromString(acl.get(0).asText()), acl.get(1).asText(), PatternType.LITERAL),
            new AccessControlEntry(
                acl.get(3).asText(), "*", SecurityUtils.operation(acl.get(2).asText()), AclPermissionType.ALLOW));
    }

    static AclBindingFilter filter(JsonNode principal) {
        return new AclBindingFilter(ResourcePatternFilter.ANY, new AccessControlEntryFilter(
            principal.asText(), null, AclOperation.ANY, AclPermissionType.ANY));
    }

    static String text(AclBinding acl) {
        return acl.pattern().resourceType() + ":" + acl.pattern().name() + ":"
            + SecurityUtils.operationName(acl.entry().operation()) + ":" + acl.entry().principal();
    }

    static ClientQuotaAlteration quotas(JsonNode change) {
        Map<String, String> entity =
            map(change.get("entity"), key -> key, name -> name.isNull() ? null : name.asText());
        List<ClientQuotaAlteration.Op> ops = new ArrayList<>();
        change.get("values").fields().forEachRemaining(each -> ops.add(new ClientQuotaAlteration.Op(
            each.getKey(), each.getValue().isNull() ? null : each.getValue().asDouble())));
        return new ClientQuotaAlteration(new ClientQuotaEntity(entity), ops);
    }

    static String text(ClientQuotaEntity entity) {
        return new TreeMap<>(entity.entries()).toString();
    }

    static UserScramCredentialAlteration credential(JsonNode change) {
        String user = change.get("user").asText();
        ScramMechanism mechanism = ScramMechanism.fromMechanismName(change.path("mechanism").asText("SCRAM-SHA-512"));
        if (!change.has("iterations")) {
            return new UserScramCredentialDeletion(user, mechanism);
        }
        ScramCredentialInfo info = new ScramCredentialInfo(mechanism, change.get("iterations").asInt());
        return new UserScramCredentialUpsertion(user, info, "secret");
    }

    static TopicPartition partition(String text) {
        int dash = text.lastIndexOf('-');
        return new TopicPartition(text.substring(0, dash), Integer.parseInt(text.substring(dash + 1)));
    }

    /** A partition and the id of a broker, "topic-0:1". */
    static TopicPartitionReplica replica(String text) {
        int colon = text.lastIndexOf(':');
        TopicPartition partition = partition(text.substring(0, colon));
        int broker = Integer.parseInt(text.substring(colon + 1));
        return new TopicPartitionReplica(partition.topic(), partition.partition(), broker);
    }

    static String name(TopicPartitionReplica replica) {
        return replica.topic() + "-" + replica.partition() + ":" + replica.brokerId();
    }

    static Set<TopicPartition> partitions(JsonNode array) {
        return new LinkedHashSet<>(list(array, each -> partition(each.asText())));
    }

    static List<Integer> ids(JsonNode array) {
        return list(array, JsonNode::asInt);
    }

    static <T> List<T> list(JsonNode array, Function<JsonNode, T> of) {
        List<T> items = new ArrayList<>();
        array.forEach(each -> items.add(of.apply(each)));
        return items;
    }

    static <K, V> Map<K, V> map(JsonNode object, Function<String, K> key, Function<JsonNode, V> value) {
        Map<K, V> items = new LinkedHashMap<>();
        object.fields().forEachRemaining(each -> items.put(key.apply(each.getKey()), value.apply(each.getValue())));
        return items;
    }

    // Results

    static Object topic(TopicDescription topic) {
        return topic.partitions().stream().map(each -> List.of(
            each.leader() == null ? -1 : each.leader().id(),
            each.replicas().stream().map(node -> node.id()).toList(),
            each.isr().stream().map(node -> node.id()).toList())).collect(Collectors.toList());
    }

    static <K, V> Map<K, KafkaFuture<V>> futures(Collection<K> items, Function<K, KafkaFuture<V>> of) {
        Map<K, KafkaFuture<V>> futures = new LinkedHashMap<>();
        items.forEach(each -> futures.put(each, of.apply(each)));
        return futures;
    }

    static <K, V> Map<String, Object> each(Map<K, KafkaFuture<V>> futures, Function<V, Object> view)
            throws Exception {
        return each(futures, AdminJudge::name, view);
    }

    static <K, V> Map<String, Object> each(
            Map<K, KafkaFuture<V>> futures, Function<K, String> name, Function<V, Object> view) throws Exception {
        Map<String, Object> items = new TreeMap<>();
        for (Map.Entry<K, KafkaFuture<V>> each : futures.entrySet()) {
            items.put(name.apply(each.getKey()), answer(each.getValue(), view));
        }
        return items;
    }

    static String name(Object key) {
        return key instanceof ConfigResource resource
            ? resource.type().name().toLowerCase() + ":" + resource.name() : key.toString();
    }

    static <V> Map<String, Object> one(KafkaFuture<V> future, Function<V, Object> view) throws Exception {
        return Collections.singletonMap("", answer(future, view));
    }

    static <K, V> Map<String, Object> all(KafkaFuture<Map<K, V>> future, Function<V, Object> view) throws Exception {
        Map<String, Object> items = new TreeMap<>();
        try {
            future.get().forEach((key, value) -> items.put(name(key), result(view.apply(value))));
        } catch (ExecutionException failure) {
            items.put("", refusal(failure.getCause()));
        }
        return items;
    }

    static <V> Object answer(KafkaFuture<V> future, Function<V, Object> view) throws Exception {
        try {
            return result(view.apply(future.get()));
        } catch (ExecutionException failure) {
            return refusal(failure.getCause());
        }
    }

    static Object result(Object value) {
        return Collections.singletonMap("result", value);
    }

    static Object refusal(Throwable error) {
        return Map.of("code", (int) Errors.forException(error).code());
    }
}
