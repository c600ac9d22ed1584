package keeper

import (
	_ "embed"
	"strconv"
)

// These flags differ from a real cluster's defaults. For speed, there is no fsync and no leader election. For
// ownership, only the API server and the kubelet listen. There is no pod network, so kubelets are reached by address.

// etcdURL is relative to the cluster's directory, because the length of a socket's path is limited. etcd requires a
// port in it.
const (
	etcdSocket = "etcd.sock:0"
	etcdURL    = "unix://" + etcdSocket
)

// garbageCollection makes components collect half as often as by default. A start then needs a tenth less CPU time and
// a tenth more memory.
const garbageCollection = "GOGC=200"

func etcdArgs(f *files) []string {
	return []string{
		"--name=" + f.cluster,
		"--data-dir=" + f.path("etcd"),
		"--unsafe-no-fsync",
		"--quota-backend-bytes=8589934592",
		"--listen-client-urls=" + etcdURL,
		// No client uses this member's address, and etcd accepts no unix address here.
		"--advertise-client-urls=http://127.0.0.1:1",
		"--listen-peer-urls=unix://peer.sock:0",
		"--initial-advertise-peer-urls=http://127.0.0.1:1",
		"--initial-cluster=" + f.cluster + "=http://127.0.0.1:1",
		"--log-level=warn",
	}
}

func apiServerArgs(f *files, port int, minimal bool) []string {
	args := []string{
		"--etcd-servers=" + etcdURL,
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none",
		"--secure-port=" + strconv.Itoa(port),
		"--permit-port-sharing=true",
		"--tls-cert-file=" + f.serving.cert,
		"--tls-private-key-file=" + f.serving.key,
		"--client-ca-file=" + f.ca.cert,
		"--anonymous-auth=false",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + f.tokens.cert,
		"--service-account-signing-key-file=" + f.tokens.key,
		"--requestheader-client-ca-file=" + f.frontProxyCA.cert,
		"--requestheader-allowed-names=" + frontProxyName,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + f.frontProxy.cert,
		"--proxy-client-key-file=" + f.frontProxy.key,
		"--enable-aggregator-routing=true",
		"--kubelet-certificate-authority=" + f.ca.cert,
		"--kubelet-client-certificate=" + f.kubeletClient.cert,
		"--kubelet-client-key=" + f.kubeletClient.key,
		"--kubelet-preferred-address-types=InternalIP",
		// A load of thousands of pods is made from few clients.
		"--max-requests-inflight=3000",
		"--max-mutating-requests-inflight=1000",
		"--profiling=false",
	}
	if minimal { // no controller creates the service accounts that this plugin demands
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	return args
}

func controllerManagerArgs(f *files) []string {
	return []string{
		"--kubeconfig=" + f.controllerManager,
		"--secure-port=0",
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + f.tokens.key,
		"--root-ca-file=" + f.ca.cert,
		"--cluster-signing-cert-file=" + f.ca.cert,
		"--cluster-signing-key-file=" + f.ca.key,
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
		"--profiling=false",
	}
}

func schedulerArgs(f *files) []string {
	return []string{
		"--kubeconfig=" + f.scheduler,
		"--secure-port=0",
		"--leader-elect=false",
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
		"--profiling=false",
	}
}

// kwok reads kwokFile in the directory of kwokDirEnv, instead of a file of the user.
const (
	kwokFile   = "kwok.yaml"
	kwokDirEnv = "KWOK_WORKDIR"
)

//go:embed kwok.yaml
var kwokConfig []byte

func kwokArgs(f *files) []string {
	return []string{
		"--kubeconfig=" + f.kwok,
		"--v=WARN",
	}
}

func kubeletArgs(f *files) []string {
	return []string{
		"--kubeconfig=" + f.kubelet,
		"--node-name=" + f.node,
		"--root-dir=" + f.path("kubelet"),
		"--address=127.0.0.1",
		"--port=0",
		"--tls-cert-file=" + f.kubeletServing.cert,
		"--tls-private-key-file=" + f.kubeletServing.key,
		"--client-ca-file=" + f.ca.cert,
	}
}
