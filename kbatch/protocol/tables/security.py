"""SASL (KIP-43, KIP-152, KIP-368)."""

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
"""
