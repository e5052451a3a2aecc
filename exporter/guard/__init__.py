"""Who may read our own pages: TLS, users and a token, from files that may change while this runs."""
