"""What gRPC says of a connection that did not come about, and the remedy."""

from __future__ import annotations

_CERTIFICATES = "--tls-certificate, --tls-key and --tls-ca"
# What is said of a peer that is there and hangs up: a handshake that it does not like ends so.
_HUNG_UP = ("Socket closed", "Connection reset", "Stream removed", "Broken pipe", "ALERT")


def remedy(said: str, *, tls: bool, option: str, naming: str) -> str | None:
    """What to do about it, None where nobody can say.

    `option` is the one that holds the address, `naming` says whose name the certificate there should bear.
    """
    if "Hostname Verification" in said:
        return f"the certificate there bears another name; {naming}"
    if "Connection refused" in said:
        return f"nobody listens there; see that it runs and that {option} names where it listens"
    if "WRONG_VERSION_NUMBER" in said:
        return (
            f"it speaks plain text; leave out {_CERTIFICATES} (and HEADWATER_TLS_*), or give it certificates"
        )
    # An alert is what the other side has said of ours.
    if "handshake failed" in said and "ALERT" not in said:
        return (
            "its certificate does not pass with --tls-ca; give the file of the CA that has issued it, and "
            "see that it has not expired"
        )
    if any(words in said for words in _HUNG_UP):
        if tls:
            return (
                "it hangs up; see that --tls-certificate is of the CA that it knows, and has not expired, "
                "and that a port-forward to it leads to a pod that still runs"
            )
        return f"it hangs up; give {_CERTIFICATES} if it asks for certificates"
    return None
