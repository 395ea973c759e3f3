"""Servers that cannot prove who they are: why not, and what to do about it."""

import ssl

from dibs.errors import ConfigurationError

# OpenSSL's numbers (X509_V_ERR_…): Python has no names for them.
_UNKNOWN_CA = (2, 18, 19, 20, 21)
_WRONG_NAME = (62, 64)


def failed_check(problem: BaseException) -> ssl.SSLCertVerificationError | None:
    """The refusal of a certificate that is, or led to, this problem."""
    cause: BaseException | None = problem
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    return cause


def untrusted(refusal: ssl.SSLCertVerificationError, server: str, authority: str) -> ConfigurationError:
    """The error for a server whose certificate was refused; ``authority`` is where its CA's certificate is named."""
    if refusal.verify_code in _WRONG_NAME:
        advice = "write its name in the URL as it stands in the certificate"
    elif refusal.verify_code in _UNKNOWN_CA:
        advice = f"name the file with the certificate of its CA in {authority}"
    else:  # expired, revoked, or without what Python asks of one
        advice = "have a new one made"
    return ConfigurationError(
        f"the certificate of {server} is not good ({refusal.verify_message.rstrip('.')}): {advice}"
    )
