package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/test/cluster/pki"
)

// upstreamCommand runs this program as stand-ins of clusters. The next argument is a standIns in JSON.
const upstreamCommand = "upstream"

// standIns configures clusters that only have pods, in their own process. They replace real clusters because their
// number, latency and rate can be set.
type standIns struct {
	Members int
	Pods    int           // of each member
	Delay   time.Duration // round trip time of the last member's network; that of the first member is half of it
	Rate    int           // bytes a second of a list; 0 means no limit
	Events  float64       // per second in each watch
	// Recorded is the number of distinct recordings that the members serve; 0 means none. Then Delay and Rate are unused.
	Recorded int
	// OpenAPI is a file with a document of OpenAPI that the recordings serve for all groups, each with another title.
	// Without it, they serve an empty one.
	OpenAPI string
}

// served is the process's output after its start.
type served struct {
	CA   []byte
	URLs []string
}

// start runs the process. The returned function ends it.
func (s standIns) start(ctx context.Context) (served, func(), error) {
	spec, err := json.Marshal(s)
	if err != nil {
		return served{}, nil, err
	}
	this, err := os.Executable()
	if err != nil {
		return served{}, nil, err
	}
	cmd := exec.CommandContext(ctx, this, upstreamCommand, string(spec))
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return served{}, nil, err
	}
	if err := cmd.Start(); err != nil {
		return served{}, nil, err
	}
	stop := func() { interrupt(cmd) }
	var info served
	if err := json.NewDecoder(bufio.NewReader(stdout)).Decode(&info); err != nil {
		stop()
		return served{}, nil, fmt.Errorf("the stand-ins do not start: %w", err)
	}
	return info, stop, nil
}

// serveUpstream serves the stand-ins until ctx ends.
func serveUpstream(ctx context.Context, spec string) error {
	var s standIns
	if err := json.Unmarshal([]byte(spec), &s); err != nil {
		return err
	}
	before, after, err := pod()
	if err != nil {
		return err
	}
	document := []byte(`{"openapi":"3.0.0","info":{"title":"Kubernetes","version":"v1.36.0"},"paths":{}}`)
	if s.OpenAPI != "" {
		if document, err = os.ReadFile(s.OpenAPI); err != nil {
			return err
		}
	}
	recordings := make([]*recording, s.Recorded)
	for i := range recordings {
		if recordings[i], err = newRecording(s.Pods, i, document); err != nil {
			return err
		}
	}
	info, certificate, err := standInCertificate()
	if err != nil {
		return err
	}
	for i := range s.Members {
		var m http.Handler = &standInMember{standIns: s, before: before, after: after}
		if s.Recorded > 0 {
			m = &recordedMember{recording: recordings[i%s.Recorded], churn: s.Events}
		}
		srv := httptest.NewUnstartedServer(m)
		srv.EnableHTTP2 = true
		srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
		srv.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
		if s.Delay > 0 {
			roundTrip := s.Delay/2 + s.Delay/2*time.Duration(i+1)/time.Duration(s.Members)
			srv.Listener = delayedListener{srv.Listener, roundTrip / 2}
			srv.TLS.NextProtos = []string{"h2"} // servers of HTTP/1.1 need deadlines of connections
		}
		srv.StartTLS()
		defer srv.Close()
		defer srv.CloseClientConnections()
		info.URLs = append(info.URLs, srv.URL)
	}
	if err := json.NewEncoder(os.Stdout).Encode(info); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// standInCertificate returns the certificate of all stand-ins. Its key is ECDSA P-256: signatures with the RSA key of
// httptest would need most of the time in which the gateway opens its connections.
func standInCertificate() (served, tls.Certificate, error) {
	ca, err := pki.NewCA("stand-ins")
	if err != nil {
		return served{}, tls.Certificate{}, err
	}
	pair, err := ca.Issue(pki.Subject{Name: "stand-in", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		return served{}, tls.Certificate{}, err
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	return served{CA: ca.Cert}, certificate, err
}

// standInMember is the server of one cluster.
type standInMember struct {
	standIns
	before, after []byte // JSON of a pod before and after its name
}

// ServeHTTP implements http.Handler.
func (m *standInMember) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path != "/api/v1/pods":
		_, _ = io.WriteString(w, `{"gitVersion":"v1.36.0"}`) // the fleet refuses a /version that is no object
	case route.Truthy(r.URL.RawQuery, "watch"):
		m.watch(r.Context(), w)
	default:
		m.list(r.Context(), w)
	}
}

const listVersion = 1000

// list writes all pods, in chunks.
func (m *standInMember) list(ctx context.Context, w io.Writer) {
	const chunk = 32 << 10
	buf := fmt.Appendf(nil, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[`,
		listVersion)
	start, sent := time.Now(), 0
	for i := range m.Pods {
		if i > 0 {
			buf = append(buf, ',')
		}
		buf = m.append(buf, i, i)
		if len(buf) < chunk {
			continue
		}
		if _, err := w.Write(buf); err != nil {
			return
		}
		if sent += len(buf); m.Rate > 0 {
			wait(ctx, time.Until(start.Add(time.Duration(float64(sent)/float64(m.Rate)*float64(time.Second)))))
		}
		buf = buf[:0]
	}
	_, _ = w.Write(append(buf, "]}\n"...)) // the client may be gone
}

// append appends a pod. For events, version is greater than that of the list.
func (m *standInMember) append(buf []byte, n, version int) []byte {
	buf = append(buf, m.before...)
	buf = fmt.Appendf(buf, `"name":"pod-%06d","resourceVersion":"%d","annotations":{"sent":"%d"}`, n, version+1,
		time.Now().UnixNano())
	return append(buf, m.after...)
}

// watch writes events at the rate Events. Each has its time of sending.
func (m *standInMember) watch(ctx context.Context, w http.ResponseWriter) {
	flush := http.NewResponseController(w).Flush
	_ = flush()
	if m.Events == 0 {
		<-ctx.Done()
		return
	}
	ticks := time.NewTicker(time.Duration(float64(time.Second) / m.Events))
	defer ticks.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		buf := m.append([]byte(`{"type":"MODIFIED","object":`), n%100, listVersion+n)
		if _, err := w.Write(append(buf, "}\n"...)); err != nil || flush() != nil {
			return
		}
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

const namePlaceholder = `"name":"NAME"`

// pod returns the JSON of a typical pod of about 4 KB, before and after its name.
func pod() (before, after []byte, err error) {
	text, err := json.Marshal(typicalPod())
	if err != nil {
		return nil, nil, err
	}
	before, after, found := bytes.Cut(text, []byte(namePlaceholder))
	if !found {
		return nil, nil, errors.New("a pod without a name")
	}
	return before, after, nil
}

func typicalPod() *corev1.Pod {
	p := &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{
		Name: "NAME", Namespace: "shop", UID: "6d1f3c0e-7d0c-4f6b-9f0e-3b1f7f3a2c11",
		CreationTimestamp: metav1.Unix(1_790_000_000, 0), GenerateName: "web-7d9f4c6b58-",
		Labels: map[string]string{"app": "web", "pod-template-hash": "7d9f4c6b58", "app.kubernetes.io/name": "web",
			"app.kubernetes.io/part-of": "shop"},
	}}
	for i := range 2 {
		c := corev1.Container{Name: "container-" + strconv.Itoa(i), Image: "registry.example.com/shop/web:1.27.3",
			ImagePullPolicy: corev1.PullIfNotPresent}
		for j := range 10 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", j),
				Value: "a value that says something \"quoted\""})
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: fmt.Sprintf("volume-%d", j),
				MountPath: fmt.Sprintf("/var/lib/volume-%d", j)})
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, Ready: true,
			Image:   c.Image,
			ImageID: "sha256:8f0c8b5a6d2e3c4f8f0c8b5a6d2e3c4f8f0c8b5a6d2e3c4f8f0c8b5a6d2e3c4f",
			State:   corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady,
		corev1.PodScheduled} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.Unix(1_790_000_000, 0)})
	}
	p.Status.Phase, p.Spec.NodeName = corev1.PodRunning, "node-17"
	return p
}
