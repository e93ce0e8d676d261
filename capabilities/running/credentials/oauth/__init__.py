"""OAuth 2.1 as a client, on the server: who the authorization server is, our client there, sign-ins, tokens.

Everything that is asked of a far side leaves by `capabilities.running.egress`. Whatever does not work raises
OAuthRefused with one sentence for the reader.
"""
