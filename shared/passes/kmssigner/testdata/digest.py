# What moto's KMS lacks: of the MessageType DIGEST it makes another digest.
import threading

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from moto.kms.responses import KmsResponse
from moto.kms.utils import ECDSAPrivateKey

request = threading.local()


def respond(self, respond=KmsResponse.sign):
    request.message_type = self._get_param("MessageType")
    return respond(self)


def sign(self, message, signing_algorithm, sign=ECDSAPrivateKey.sign):
    if getattr(request, "message_type", None) != "DIGEST":
        return sign(self, message, signing_algorithm)
    return self.private_key.sign(message, ec.ECDSA(Prehashed(hashes.SHA256())))


KmsResponse.sign = respond
ECDSAPrivateKey.sign = sign
