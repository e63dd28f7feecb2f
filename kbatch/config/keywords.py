"""Made from the tables by `python -m kbatch.config.stubs`: which keywords clients take, for type checkers.

A function that passes settings on is typed by them: `def connect(**settings: Unpack[ProducerKeywords])`.
None leaves a key at its default. Names of other clients come after kbatch's own. Keys that accept nothing but
their default are missing; a mapping of settings may have them.
"""

from collections.abc import Callable, Mapping
from os import PathLike
from ssl import SSLContext
from typing import Any, Generic, Protocol, TypedDict

from kbatch.config.values import Password
from kbatch.typed import AnyDeserializer, K, V


class TokenProvider(Protocol):
    """Gives tokens, as aiokafka's and kafka-python's providers do."""

    def token(self) -> Any: ...


class ClientKeywords(TypedDict, total=False):
    """The keywords of every client."""

    bootstrap_servers: str | list[str] | tuple[str, ...] | None
    client_id: str | None
    client_dns_lookup: str | None
    connections_max_idle_ms: int | str | None
    reconnect_backoff_ms: int | str | None
    reconnect_backoff_max_ms: int | str | None
    socket_connection_setup_timeout_ms: int | str | None
    socket_connection_setup_timeout_max_ms: int | str | None
    send_buffer_bytes: int | str | None
    receive_buffer_bytes: int | str | None
    request_timeout_ms: int | str | None
    retry_backoff_ms: int | str | None
    retry_backoff_max_ms: int | str | None
    metadata_max_age_ms: int | str | None
    metadata_recovery_strategy: str | None
    metadata_recovery_rebootstrap_trigger_ms: int | str | None
    metrics_num_samples: int | str | None
    metrics_sample_window_ms: int | str | None
    metrics_recording_level: str | None
    enable_metrics_push: bool | str | None
    security_protocol: str | None
    ssl_context: SSLContext | Callable[[], SSLContext] | None
    ssl_truststore_location: str | PathLike[str] | None
    ssl_truststore_certificates: str | Password | None
    ssl_truststore_type: str | None
    ssl_truststore_password: str | Password | None
    ssl_crl_location: str | PathLike[str] | None
    ssl_keystore_location: str | PathLike[str] | None
    ssl_key_location: str | PathLike[str] | None
    ssl_keystore_certificate_chain: str | Password | None
    ssl_keystore_key: str | Password | None
    ssl_key_password: str | Password | None
    ssl_keystore_type: str | None
    ssl_keystore_password: str | Password | None
    ssl_endpoint_identification_algorithm: str | None
    ssl_enabled_protocols: str | list[str] | tuple[str, ...] | None
    ssl_cipher_suites: str | list[str] | tuple[str, ...] | None
    https_ca_location: str | PathLike[str] | None
    https_ca_pem: str | Password | None
    sasl_mechanism: str | None
    sasl_username: str | None
    sasl_password: str | Password | None
    sasl_scram_tokenauth: bool | str | None
    sasl_jaas_config: str | Password | None
    sasl_kerberos_service_name: str | None
    sasl_kerberos_domain_name: str | None
    sasl_kerberos_principal: str | None
    sasl_kerberos_keytab: str | PathLike[str] | None
    sasl_kerberos_ticket_cache: str | PathLike[str] | None
    sasl_aws_role_arn: str | None
    sasl_aws_role_session_name: str | None
    sasl_aws_sts_region: str | None
    sasl_aws_profile_name: str | None
    sasl_oauthbearer_token: str | Callable[..., Any] | TokenProvider | None
    sasl_oauthbearer_config: str | None
    sasl_oauthbearer_extensions: str | Mapping[str, str] | None
    enable_sasl_oauthbearer_unsecure_jwt: bool | str | None
    sasl_oauthbearer_jwt_retriever_class: object
    sasl_oauthbearer_jwt_validator_class: object
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | Password | None
    sasl_oauthbearer_header_urlencode: bool | str | None
    sasl_oauthbearer_assertion_algorithm: str | None
    sasl_oauthbearer_assertion_claim_aud: str | None
    sasl_oauthbearer_assertion_claim_exp_seconds: int | str | None
    sasl_oauthbearer_assertion_claim_iss: str | None
    sasl_oauthbearer_assertion_claim_jti_include: bool | str | None
    sasl_oauthbearer_assertion_claim_nbf_seconds: int | str | None
    sasl_oauthbearer_assertion_claim_sub: str | None
    sasl_oauthbearer_assertion_file: str | PathLike[str] | None
    sasl_oauthbearer_assertion_private_key_file: str | PathLike[str] | None
    sasl_oauthbearer_assertion_private_key_pem: str | Password | None
    sasl_oauthbearer_assertion_private_key_passphrase: str | Password | None
    sasl_oauthbearer_assertion_template_file: str | PathLike[str] | None
    sasl_oauthbearer_scope_claim_name: str | None
    sasl_oauthbearer_sub_claim_name: str | None
    sasl_oauthbearer_clock_skew_seconds: int | str | None
    sasl_oauthbearer_expected_audience: str | list[str] | tuple[str, ...] | None
    sasl_oauthbearer_expected_issuer: str | None
    sasl_oauthbearer_jwks_endpoint_url: str | None
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int | str | None
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int | str | None
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int | str | None
    sasl_client_callback_handler_class: object
    sasl_login_callback_handler_class: object
    sasl_login_connect_timeout_ms: int | str | None
    sasl_login_read_timeout_ms: int | str | None
    sasl_login_refresh_window_factor: float | str | None
    sasl_login_refresh_window_jitter: float | str | None
    sasl_login_refresh_min_period_seconds: int | str | None
    sasl_login_refresh_buffer_seconds: int | str | None
    sasl_login_retry_backoff_ms: int | str | None
    sasl_login_retry_backoff_max_ms: int | str | None
    metadata_broker_list: str | list[str] | tuple[str, ...] | None
    socket_timeout_ms: int | str | None
    socket_send_buffer_bytes: int | str | None
    socket_receive_buffer_bytes: int | str | None
    topic_metadata_refresh_interval_ms: int | str | None
    ssl_ca_location: str | PathLike[str] | None
    ssl_ca_pem: str | Password | None
    ssl_certificate_location: str | PathLike[str] | None
    ssl_certificate_pem: str | Password | None
    ssl_key_pem: str | Password | None
    sasl_mechanisms: str | None
    sasl_oauthbearer_client_id: str | None
    sasl_oauthbearer_client_secret: str | Password | None
    sasl_oauthbearer_grant_type: str | None
    sasl_oauthbearer_assertion_jwt_template_file: str | PathLike[str] | None
    oauth_cb: str | Callable[..., Any] | TokenProvider | None
    ssl_cafile: str | PathLike[str] | None
    ssl_crlfile: str | PathLike[str] | None
    ssl_ciphers: str | list[str] | tuple[str, ...] | None
    ssl_certfile: str | PathLike[str] | None
    ssl_keyfile: str | PathLike[str] | None
    ssl_password: str | Password | None
    ssl_check_hostname: bool | str | None
    sasl_plain_username: str | None
    sasl_plain_password: str | Password | None
    sasl_oauth_token_provider: str | Callable[..., Any] | TokenProvider | None


class ProducerKeywords(ClientKeywords, total=False):
    """The keywords of Producer and AsyncProducer."""

    metadata_max_idle_ms: int | str | None
    batch_size: int | str | None
    linger_ms: int | str | None
    buffer_memory: int | str | None
    max_block_ms: int | str | None
    max_request_size: int | str | None
    compression_type: str | None
    compression_level: int | str | None
    compression_gzip_level: int | str | None
    compression_lz4_level: int | str | None
    compression_zstd_level: int | str | None
    acks: int | str | None
    enable_idempotence: bool | str | None
    max_in_flight_requests_per_connection: int | str | None
    retries: int | str | None
    delivery_timeout_ms: int | str | None
    kbatch_on_delivery_failure: str | None
    kbatch_sequence_gap: str | None
    kbatch_sequence_idle_ms: int | str | None
    kbatch_lane: str | None
    partitioner_class: object
    partitioner_ignore_keys: bool | str | None
    partitioner_adaptive_partitioning_enable: bool | str | None
    partitioner_availability_timeout_ms: int | str | None
    key_serializer: object
    value_serializer: object
    interceptor_classes: list[Any] | tuple[Any, ...] | None
    transactional_id: str | None
    transaction_timeout_ms: int | str | None
    request_required_acks: int | str | None
    compression_codec: str | None
    queue_buffering_max_ms: int | str | None
    queue_buffering_max_kbytes: int | str | None
    message_timeout_ms: int | str | None
    message_send_max_retries: int | str | None
    message_max_bytes: int | str | None
    max_in_flight: int | str | None
    partitioner: object
    max_batch_size: int | str | None


class ConsumerKeywords(ClientKeywords, Generic[K, V], total=False):
    """The keywords of Consumer and AsyncConsumer."""

    fetch_min_bytes: int | str | None
    fetch_max_wait_ms: int | str | None
    fetch_max_bytes: int | str | None
    max_partition_fetch_bytes: int | str | None
    kbatch_fetch_buffer_memory: int | str | None
    kbatch_decode_threads: int | str | None
    kbatch_max_decompressed_bytes: int | str | None
    check_crcs: bool | str | None
    isolation_level: str | None
    client_rack: str | None
    allow_auto_create_topics: bool | str | None
    auto_offset_reset: str | None
    default_api_timeout_ms: int | str | None
    group_id: str | None
    group_instance_id: str | None
    group_protocol: str | None
    group_remote_assignor: str | None
    partition_assignment_strategy: str | list[str] | tuple[str, ...] | None
    session_timeout_ms: int | str | None
    heartbeat_interval_ms: int | str | None
    max_poll_interval_ms: int | str | None
    max_poll_records: int | str | None
    enable_auto_commit: bool | str | None
    auto_commit_interval_ms: int | str | None
    exclude_internal_topics: bool | str | None
    share_acknowledgement_mode: str | None
    share_acquire_mode: str | None
    key_deserializer: AnyDeserializer[K] | None
    value_deserializer: AnyDeserializer[V] | None
    deserialize: str | None
    on_deserialization_error: object
    interceptor_classes: list[Any] | tuple[Any, ...] | None
    auto_commit_enable: bool | str | None
    fetch_wait_max_ms: int | str | None
    fetch_message_max_bytes: int | str | None
    queued_max_messages_kbytes: int | str | None


class ShareConsumerKeywords(ClientKeywords, Generic[K, V], total=False):
    """The keywords of ShareConsumer and AsyncShareConsumer."""

    fetch_min_bytes: int | str | None
    fetch_max_wait_ms: int | str | None
    fetch_max_bytes: int | str | None
    max_partition_fetch_bytes: int | str | None
    kbatch_fetch_buffer_memory: int | str | None
    kbatch_decode_threads: int | str | None
    kbatch_max_decompressed_bytes: int | str | None
    check_crcs: bool | str | None
    client_rack: str | None
    allow_auto_create_topics: bool | str | None
    default_api_timeout_ms: int | str | None
    group_id: str | None
    max_poll_interval_ms: int | str | None
    max_poll_records: int | str | None
    exclude_internal_topics: bool | str | None
    share_acknowledgement_mode: str | None
    share_acquire_mode: str | None
    key_deserializer: AnyDeserializer[K] | None
    value_deserializer: AnyDeserializer[V] | None
    on_deserialization_error: object
    interceptor_classes: list[Any] | tuple[Any, ...] | None
    fetch_wait_max_ms: int | str | None
    fetch_message_max_bytes: int | str | None
    queued_max_messages_kbytes: int | str | None


class TopicReaderKeywords(ClientKeywords, Generic[K, V], total=False):
    """The keywords of TopicReader."""

    fetch_min_bytes: int | str | None
    fetch_max_wait_ms: int | str | None
    fetch_max_bytes: int | str | None
    max_partition_fetch_bytes: int | str | None
    kbatch_fetch_buffer_memory: int | str | None
    kbatch_decode_threads: int | str | None
    kbatch_max_decompressed_bytes: int | str | None
    check_crcs: bool | str | None
    isolation_level: str | None
    client_rack: str | None
    allow_auto_create_topics: bool | str | None
    auto_offset_reset: str | None
    default_api_timeout_ms: int | str | None
    share_acknowledgement_mode: str | None
    share_acquire_mode: str | None
    key_deserializer: AnyDeserializer[K] | None
    value_deserializer: AnyDeserializer[V] | None
    deserialize: str | None
    on_deserialization_error: object
    interceptor_classes: list[Any] | tuple[Any, ...] | None
    fetch_wait_max_ms: int | str | None
    fetch_message_max_bytes: int | str | None
    queued_max_messages_kbytes: int | str | None


class AdminKeywords(ClientKeywords, total=False):
    """The keywords of Admin and AsyncAdmin."""

    bootstrap_controllers: str | list[str] | tuple[str, ...] | None
    default_api_timeout_ms: int | str | None
    retries: int | str | None
    message_send_max_retries: int | str | None
