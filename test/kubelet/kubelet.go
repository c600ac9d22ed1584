// Package kubelet is a kubelet for tests and demos whose containers are plain processes of this machine. See
// docs/development/process-kubelet.md.
//
// There is no isolation: a caller who may create pods on the node, or use nodes/proxy, runs programs as the kubelet's
// user. So the kubelet is only for clusters of that user. Its API accepts client certificates of the cluster's CA, and
// authorizes callers by a SubjectAccessReview.
//
// Invariants:
//   - No process of a container outlives the container or the kubelet; see package shim.
//   - The reported state of a pod comes from its processes, never from its spec.
//   - Only one goroutine, its worker, changes a pod's state. The HTTP API reads it under the pod's lock.
package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

const apiTimeout = 10 * time.Second

// Config configures a kubelet. Fields without a documented default are required.
type Config struct {
	Client   kubernetes.Interface // calls the API server as the node
	NodeName string
	// RootDir contains containers' directories, volumes and logs. It is created if it is missing. Remains of another
	// kubelet's pods there are deleted.
	RootDir                        string
	Address                        string        // IP address to listen on, and the node's InternalIP
	Port                           int           // TCP port to listen on; 0 means a free one
	TLSCertFile, TLSPrivateKeyFile string        // in PEM, for serving
	ClientCAFile                   string        // CAs of accepted client certificates in PEM
	MaxPods                        int           // capacity of pods; default: 110
	Backoff                        time.Duration // before a first restart; doubles up to ten times that; default: 1 s
	Log                            *slog.Logger  // default: slog.Default()
}

// Kubelet is a node. Create it with New.
type Kubelet struct {
	Config
	tls      *tls.Config
	port     int // the actual port
	recorder record.EventRecorder
	podsDir  string
	mu       sync.Mutex // guards pods
	pods     map[types.UID]*pod
	workers  sync.WaitGroup
}

// New validates the configuration and reads its files. Run starts the node.
func New(c Config) (*Kubelet, error) {
	if c.MaxPods == 0 {
		c.MaxPods = 110
	}
	if c.Backoff == 0 {
		c.Backoff = time.Second
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.NodeName == "" {
		return nil, errors.New("the node needs a name")
	}
	if net.ParseIP(c.Address) == nil {
		return nil, fmt.Errorf("the address %q is not an IP address", c.Address)
	}
	if c.RootDir == "" {
		return nil, errors.New("the root directory is missing")
	}
	root, err := filepath.Abs(c.RootDir)
	if err != nil {
		return nil, fmt.Errorf("root directory: %w", err)
	}
	certificate, err := tls.LoadX509KeyPair(c.TLSCertFile, c.TLSPrivateKeyFile)
	if err != nil {
		return nil, fmt.Errorf("load the serving certificate: %w", err)
	}
	authorities, err := os.ReadFile(c.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("read the client authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("read the client authorities: %s holds no certificate", c.ClientCAFile)
	}
	return &Kubelet{
		Config:  c,
		podsDir: filepath.Join(root, "pods"),
		pods:    make(map[types.UID]*pod),
		tls: &tls.Config{
			Certificates: []tls.Certificate{certificate},
			// A request without a certificate gets a 401 instead of a failed handshake.
			ClientAuth: tls.VerifyClientCertIfGiven,
			ClientCAs:  pool,
			MinVersion: tls.VersionTLS12,
		},
	}, nil
}

// Run runs the node until ctx ends. Then it kills its containers and returns nil. Call it only once.
func (k *Kubelet) Run(ctx context.Context) error {
	if err := os.RemoveAll(k.podsDir); err != nil {
		return fmt.Errorf("clear the root directory: %w", err)
	}
	if err := os.MkdirAll(k.podsDir, 0o700); err != nil {
		return fmt.Errorf("make the root directory: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(k.Address, strconv.Itoa(k.Port)))
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	k.port = listener.Addr().(*net.TCPAddr).Port

	broadcaster := record.NewBroadcaster()
	defer broadcaster.Shutdown()
	events := k.Client.CoreV1().Events("")
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: events})
	k.recorder = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "process-kubelet", Host: k.NodeName})

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Streams end with ctx, which is the parent of every request's context.
	server := &http.Server{
		Handler:           k.handler(),
		TLSConfig:         k.tls,
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(k.Log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	var running sync.WaitGroup
	running.Go(func() {
		if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serve: %w", err)
		}
	})
	running.Go(func() { k.maintainNode(ctx) })
	running.Go(func() { k.watchPods(ctx) })

	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	cancel()
	server.Close()
	running.Wait()
	k.workers.Wait() // after watchPods, which starts them
	return err
}
