# Gives the clusters of moto's EKS the certificate in EKS_CA, in base64. moto has random characters there.
import os

from moto.eks.models import Cluster


def create(self, *args, create=Cluster.__init__, **kwargs):
    create(self, *args, **kwargs)
    self.certificate_authority = {"data": os.environ["EKS_CA"]}


Cluster.__init__ = create
