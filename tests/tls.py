"""Certificates made for a test, and connections that use them."""

import ssl
import subprocess

from harness import Connection


def openssl(*words):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=60)


class Authority:
    """Signs certificates, for servers and for clients. Everything lies in `folder`, readable by the server's user."""

    def __init__(self, folder, name="authority"):
        self.folder, self.name = folder, name
        self.certificate, self.key = folder / f"{name}.pem", folder / f"{name}.key"
        openssl(
            *["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"],
            *["-subj", f"/CN={name}", "-keyout", self.key, "-out", self.certificate],
        )

    def issue(self, name, *, rsa=False):
        """The files of a certificate for `name`, which must also be the name of the host if a server shows it."""
        key, request, certificate = (self.folder / f"{name}.{end}" for end in ("key", "csr", "pem"))
        kind = ["rsa:2048"] if rsa else ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        openssl("req", "-newkey", *kind, "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        names = self.folder / "names"
        names.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        openssl(
            *["x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial"],
            *["-days", "2", "-extfile", names, "-out", certificate],
        )
        for file in (certificate, key):
            file.chmod(0o644)
        return certificate, key

    def context(self, client=None):
        """What a client needs that trusts this authority, and shows the certificate `client` if there is one."""
        context = ssl.create_default_context(cafile=self.certificate)
        if client:
            context.load_cert_chain(*client)
        return context


def flags(certificate, key, *more):
    return ["-Z", "-o", ",".join([f"ssl_chain_cert={certificate}", f"ssl_key={key}", *more])]


class TlsConnection(Connection):
    """A connection under TLS. `send` blocks: for tests that do not need to take answers meanwhile."""

    def __init__(self, where, context, **options):
        super().__init__(where)
        try:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost", **options)
        except Exception:
            self.socket.close()
            raise

    def send(self, data):
        self.socket.sendall(data)

    def shown(self):
        """The common name of the server's certificate."""
        subject = dict(pair for group in self.socket.getpeercert()["subject"] for pair in group)
        return subject["commonName"]
