-- Nothing is open to everybody; see dibs.allow.
revoke all on all functions in schema dibs from public;
