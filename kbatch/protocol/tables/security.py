"""SASL (KIP-43, 152, 368), ACLs (KIP-140, 290), users of SCRAM (KIP-554), delegation tokens (KIP-48)."""

TABLE = """
SaslHandshakeRequest  api 17  versions 0-1
    mechanism  string

SaslHandshakeResponse  api 17  versions 0-1
    error_code  int16
    mechanisms  []string

SaslAuthenticateRequest  api 36  versions 0-2  flexible 2+
    auth_bytes  bytes  secret

SaslAuthenticateResponse  api 36  versions 0-2  flexible 2+
    error_code           int16
    error_message        string?
    auth_bytes           bytes    secret
    session_lifetime_ms  int64    1+  ignorable

DescribeAclsRequest  api 29  versions 1-3  flexible 2+
    resource_type_filter  int8
    resource_name_filter  string?
    pattern_type_filter   int8     default 3
    principal_filter      string?
    host_filter           string?
    operation             int8
    permission_type       int8

DescribeAclsResponse  api 29  versions 1-3  flexible 2+
    throttle_time_ms     int32
    error_code           int16
    error_message        string?
    resources            []DescribeAclsResource
        resource_type    int8
        resource_name    string
        pattern_type     int8                  default 3
        acls             []AclDescription
            principal    string
            host         string
            operation    int8
            permission_type  int8

CreateAclsRequest  api 30  versions 1-3  flexible 2+
    creations                  []AclCreation
        resource_type          int8
        resource_name          string
        resource_pattern_type  int8           default 3
        principal              string
        host                   string
        operation              int8
        permission_type        int8

CreateAclsResponse  api 30  versions 1-3  flexible 2+
    throttle_time_ms   int32
    results            []AclCreationResult
        error_code     int16
        error_message  string?

DeleteAclsRequest  api 31  versions 1-3  flexible 2+
    filters                   []DeleteAclsFilter
        resource_type_filter  int8
        resource_name_filter  string?
        pattern_type_filter   int8                default 3
        principal_filter      string?
        host_filter           string?
        operation             int8
        permission_type       int8

DeleteAclsResponse  api 31  versions 1-3  flexible 2+
    throttle_time_ms       int32
    filter_results         []DeleteAclsFilterResult
        error_code         int16
        error_message      string?
        matching_acls      []DeleteAclsMatchingAcl
            error_code     int16
            error_message  string?
            resource_type  int8
            resource_name  string
            pattern_type   int8                default 3
            principal      string
            host           string
            operation      int8
            permission_type  int8

CreateDelegationTokenRequest  api 38  versions 1-3  flexible 2+
    owner_principal_type  string?              3+
    owner_principal_name  string?              3+
    renewers              []CreatableRenewers
        principal_type    string
        principal_name    string
    max_lifetime_ms       int64

CreateDelegationTokenResponse  api 38  versions 1-3  flexible 2+
    error_code                      int16
    principal_type                  string
    principal_name                  string
    token_requester_principal_type  string  3+
    token_requester_principal_name  string  3+
    issue_timestamp_ms              int64
    expiry_timestamp_ms             int64
    max_timestamp_ms                int64
    token_id                        string
    hmac                            bytes   secret
    throttle_time_ms                int32

RenewDelegationTokenRequest  api 39  versions 1-2  flexible 2+
    hmac             bytes  secret
    renew_period_ms  int64

RenewDelegationTokenResponse  api 39  versions 1-2  flexible 2+
    error_code           int16
    expiry_timestamp_ms  int64
    throttle_time_ms     int32

ExpireDelegationTokenRequest  api 40  versions 1-2  flexible 2+
    hmac                   bytes  secret
    expiry_time_period_ms  int64

ExpireDelegationTokenResponse  api 40  versions 1-2  flexible 2+
    error_code           int16
    expiry_timestamp_ms  int64
    throttle_time_ms     int32

DescribeDelegationTokenRequest  api 41  versions 1-3  flexible 2+
    owners              []DescribeDelegationTokenOwner?
        principal_type  string
        principal_name  string

DescribeDelegationTokenResponse  api 41  versions 1-3  flexible 2+
    error_code                          int16
    tokens                              []DescribedDelegationToken
        principal_type                  string
        principal_name                  string
        token_requester_principal_type  string                            3+
        token_requester_principal_name  string                            3+
        issue_timestamp                 int64
        expiry_timestamp                int64
        max_timestamp                   int64
        token_id                        string
        hmac                            bytes   secret
        renewers                        []DescribedDelegationTokenRenewer
            principal_type              string
            principal_name              string
    throttle_time_ms                    int32

DescribeUserScramCredentialsRequest  api 50  versions 0  flexible 0+
    users     []UserName?
        name  string

DescribeUserScramCredentialsResponse  api 50  versions 0  flexible 0+
    throttle_time_ms      int32
    error_code            int16
    error_message         string?
    results               []DescribeUserScramCredentialsResult
        user              string
        error_code        int16
        error_message     string?
        credential_infos  []CredentialInfo
            mechanism     int8
            iterations    int32

AlterUserScramCredentialsRequest  api 51  versions 0  flexible 0+
    deletions            []ScramCredentialDeletion
        name             string
        mechanism        int8
    upsertions           []ScramCredentialUpsertion
        name             string
        mechanism        int8
        iterations       int32
        salt             bytes
        salted_password  bytes                       secret

AlterUserScramCredentialsResponse  api 51  versions 0  flexible 0+
    throttle_time_ms   int32
    results            []AlterUserScramCredentialsResult
        user           string
        error_code     int16
        error_message  string?
"""
