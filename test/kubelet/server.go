package kubelet

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/clusterpass/clusterpass/test/kubelet/crilog"
)

const (
	// streamIdleTimeout ends an idle stream, like the kubelet's.
	streamIdleTimeout = 4 * time.Hour
	// streamCreationTimeout is the deadline for the client to open a connection's streams.
	streamCreationTimeout = 30 * time.Second
	// lastWords is how long a finished stream waits for its client to close the connection. An earlier close may lose
	// output and exit code in the API server.
	lastWords = 15 * time.Second
)

func (k *Kubelet) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("GET /pods", k.servePods)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.serveLogs)
	// Clients use GET (websocket) and POST (SPDY).
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", k.serveExec)
	mux.HandleFunc("/exec/{namespace}/{pod}/{uid}/{container}", k.serveExec)
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", k.serveAttach)
	mux.HandleFunc("/attach/{namespace}/{pod}/{uid}/{container}", k.serveAttach)
	mux.HandleFunc("/portForward/{namespace}/{pod}", k.servePortForward)
	mux.HandleFunc("/portForward/{namespace}/{pod}/{uid}", k.servePortForward)
	return k.authorized(mux)
}

// authorized refuses clients without a certificate, or without access to nodes/proxy for the method.
func (k *Kubelet) authorized(next http.Handler) http.Handler {
	verbs := map[string]string{http.MethodGet: "get", http.MethodHead: "get", http.MethodPost: "create"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		verb, ok := verbs[r.Method]
		switch {
		case r.TLS == nil || len(r.TLS.VerifiedChains) == 0:
			http.Error(w, "a client certificate is required", http.StatusUnauthorized)
			return
		case !ok:
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		subject := r.TLS.VerifiedChains[0][0].Subject
		ctx, cancel := context.WithTimeout(r.Context(), apiTimeout)
		defer cancel()
		review, err := k.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User:   subject.CommonName,
				Groups: append(subject.Organization, "system:authenticated"),
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: verb, Version: "v1", Resource: "nodes", Subresource: "proxy", Name: k.NodeName,
				},
			},
		}, metav1.CreateOptions{})
		switch {
		case err != nil:
			k.Log.ErrorContext(ctx, "a caller's rights cannot be decided", "user", subject.CommonName, "error", err)
			http.Error(w, "the caller's rights cannot be decided: the API server did not answer", http.StatusInternalServerError)
		case !review.Status.Allowed:
			http.Error(w, fmt.Sprintf("user %q may not %s nodes/proxy of %s", subject.CommonName, verb, k.NodeName),
				http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func (k *Kubelet) servePods(w http.ResponseWriter, _ *http.Request) {
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{}}
	k.mu.Lock()
	for _, p := range k.pods {
		list.Items = append(list.Items, *p.object())
	}
	k.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list) // fails if the client is gone
}

func (k *Kubelet) serveLogs(w http.ResponseWriter, r *http.Request) {
	options, previous, err := logOptions(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p := k.findPod(r.PathValue("namespace"), r.PathValue("pod"))
	if p == nil {
		http.Error(w, fmt.Sprintf("pod %q does not exist", r.PathValue("pod")), http.StatusNotFound)
		return
	}
	log, err := p.log(r.PathValue("container"), previous)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	flush := func() { _ = http.NewResponseController(w).Flush() }
	flush() // a following client learns at once that the request succeeded
	if err := log.Copy(r.Context(), w, flush, options); err != nil && r.Context().Err() == nil {
		k.Log.WarnContext(r.Context(), "a log was not sent whole", "pod", p.object().Name, "error", err)
		panic(http.ErrAbortHandler) // a cut response instead of a short one
	}
}

func logOptions(query url.Values) (o crilog.Options, previous bool, err error) {
	number := func(name string) *int64 {
		text := query.Get(name)
		if text == "" || err != nil {
			return nil
		}
		n, parseErr := strconv.ParseInt(text, 10, 64)
		if parseErr != nil || n < 0 {
			err = fmt.Errorf("%s=%q is not a number of 0 or more", name, text)
			return nil
		}
		return &n
	}
	boolean := func(name string) bool {
		text := query.Get(name)
		if text == "" || err != nil {
			return false
		}
		b, parseErr := strconv.ParseBool(text)
		if parseErr != nil {
			err = fmt.Errorf("%s=%q is neither true nor false", name, text)
		}
		return b
	}
	o.Follow, o.Timestamps, previous = boolean("follow"), boolean("timestamps"), boolean("previous")
	o.Tail, o.Limit = number("tailLines"), number("limitBytes")
	if seconds := number("sinceSeconds"); seconds != nil {
		o.Since = time.Now().Add(-time.Duration(*seconds) * time.Second)
	}
	if text := query.Get("sinceTime"); text != "" && err == nil {
		if o.Since, err = time.Parse(time.RFC3339, text); err != nil {
			err = fmt.Errorf("sinceTime=%q is not a time as in RFC 3339", text)
		}
	}
	switch text := query.Get("stream"); text {
	case "", "All":
	case "Stdout":
		o.Stream = crilog.Stdout
	case "Stderr":
		o.Stream = crilog.Stderr
	default:
		err = fmt.Errorf("stream=%q is none of All, Stdout and Stderr", text)
	}
	return o, previous, err
}

// log returns the log of a container's present or previous run, with the usual errors of kubelets.
func (p *pod) log(name string, previous bool) (*crilog.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.containers[name]
	var r *run
	switch {
	case c == nil:
	case previous && c.state.Waiting == nil:
		r = c.previous
	default: // a container that waits for its restart has ended: its last run is also the previous one
		r = c.run
	}
	switch {
	case r != nil:
		return r.log, nil
	case previous:
		return nil, fmt.Errorf("previous terminated container %q in pod %q not found", name, p.api.Name)
	case c != nil && c.state.Waiting != nil:
		return nil, fmt.Errorf("container %q in pod %q is waiting to start: %s", name, p.api.Name, c.state.Waiting.Reason)
	case p.past || c != nil && c.exit != nil:
		return nil, fmt.Errorf("the log of container %q in pod %q went with the kubelet that ran it", name, p.api.Name)
	}
	return nil, fmt.Errorf("container %q in pod %q is waiting to start: ContainerCreating", name, p.api.Name)
}

func (k *Kubelet) serveExec(w http.ResponseWriter, r *http.Request) {
	run, options := k.stream(w, r)
	if run == nil {
		return
	}
	w, r = watchClient(w, r)
	remotecommand.ServeExec(w, r, run, "", "", "", r.URL.Query()["command"], options,
		streamIdleTimeout, streamCreationTimeout, remotecommand.SupportedStreamingProtocols)
}

func (k *Kubelet) serveAttach(w http.ResponseWriter, r *http.Request) {
	run, options := k.stream(w, r)
	if run == nil {
		return
	}
	w, r = watchClient(w, r)
	remotecommand.ServeAttach(w, r, run, "", "", "", options,
		streamIdleTimeout, streamCreationTimeout, remotecommand.SupportedStreamingProtocols)
}

// stream returns the running container and the streams of a request. Otherwise it sends an error and returns nil.
func (k *Kubelet) stream(w http.ResponseWriter, r *http.Request) (*run, *remotecommand.Options) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil, nil
	}
	p, name := k.findPod(r.PathValue("namespace"), r.PathValue("pod")), r.PathValue("container")
	if p == nil {
		http.Error(w, fmt.Sprintf("pod %q does not exist", r.PathValue("pod")), http.StatusNotFound)
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.containers[name]
	if c == nil || !c.running() {
		http.Error(w, fmt.Sprintf("container not found (%q)", name), http.StatusNotFound)
		return nil, nil
	}
	return c.run, options
}

func (k *Kubelet) servePortForward(w http.ResponseWriter, r *http.Request) {
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	name := r.PathValue("pod")
	p := k.findPod(r.PathValue("namespace"), name)
	if p == nil {
		http.Error(w, fmt.Sprintf("pod %q does not exist", name), http.StatusNotFound)
		return
	}
	// The request lasts as long as its connection, and ends with it.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	w, r = watchClient(w, r.WithContext(ctx))
	portforward.ServePortForward(w, r, forwarder{r.Context(), p.address}, name, "", options,
		streamIdleTimeout, streamCreationTimeout, portforward.SupportedProtocols)
}

// watchClient cancels the request's context when the upgraded connection breaks. net/http does not.
func watchClient(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	return clientWatcher{w, cancel}, r.WithContext(ctx)
}

type clientWatcher struct {
	http.ResponseWriter
	gone context.CancelFunc
}

func (w clientWatcher) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	ended := make(chan struct{})
	return watchedConn{conn, w.gone, ended, sync.OnceFunc(func() { close(ended) })}, buffered, nil
}

type watchedConn struct {
	net.Conn
	gone  context.CancelFunc
	ended chan struct{} // closed by end: the client closed the connection, or it broke
	end   func()
}

func (c watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.gone()
		c.end()
	}
	return n, err
}

// Close waits for the client while the reader continues.
func (c watchedConn) Close() error {
	c.gone()
	select {
	case <-c.ended:
	case <-time.After(lastWords):
	}
	return c.Conn.Close()
}
