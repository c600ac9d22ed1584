package bridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

// Check is one condition of readiness.
type Check struct {
	Name   string
	Run    func(ctx context.Context) error // everyone who can reach the admin port can read the error
	Shared bool                            // depends on something that all bridges share, so another bridge is no better
}

// The result of all checks is cached for checkTTL, except while draining, so that probes cannot load the stores. Checks
// that are not shared are cheap, and also run uncached for /healthz.
const (
	checkTimeout = 3 * time.Second
	checkTTL     = time.Second
)

// Admin serves /livez, /readyz, /healthz and /metrics for operators. /healthz is for load balancers and for
// programs that replace failed bridges, such as Amazon ECS. After a bridge was ready once, /healthz ignores shared
// checks: its caches still help, and a new bridge would have none.
func (b *Bridge) Admin(checks ...Check) http.Handler {
	checks = append([]Check{{Name: "draining", Run: func(context.Context) error {
		if b.draining.Load() {
			return errors.New("shutting down")
		}
		return nil
	}}}, checks...)
	own := slices.DeleteFunc(slices.Clone(checks), func(c Check) bool { return c.Shared })
	var (
		mu   sync.Mutex
		last time.Time
		text string
		code int

		wasReady atomic.Bool
	)
	ready := func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(last) > checkTTL || b.draining.Load() {
			code, text = run(r.Context(), checks)
			last = time.Now()
			wasReady.CompareAndSwap(false, code == http.StatusOK)
		}
		answer(w, code, text)
	}
	healthy := func(w http.ResponseWriter, r *http.Request) {
		if !wasReady.Load() {
			ready(w, r)
			return
		}
		code, text := run(r.Context(), own)
		answer(w, code, text)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", ready)
	mux.HandleFunc("GET /healthz", healthy)
	mux.Handle("GET /metrics", promhttp.HandlerFor(b.Metrics, promhttp.HandlerOpts{}))
	return mux
}

func answer(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text))
}

// run makes all checks concurrently and formats the results like kube-apiserver.
func run(ctx context.Context, checks []Check) (int, string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer cancel()
	errs := make([]error, len(checks))
	var wg sync.WaitGroup
	for i, c := range checks {
		wg.Go(func() { errs[i] = c.Run(ctx) })
	}
	wg.Wait()
	var out strings.Builder
	for i, c := range checks {
		if errs[i] != nil {
			_, _ = fmt.Fprintf(&out, "[-]%s failed: %v\n", c.Name, errs[i])
		} else {
			_, _ = fmt.Fprintf(&out, "[+]%s ok\n", c.Name)
		}
	}
	if slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return http.StatusServiceUnavailable, out.String() + "check failed\n"
	}
	return http.StatusOK, out.String() + "check passed\n"
}

func storeChecks(sec secrets.Store, obj objects.Store) []Check {
	return []Check{
		{Name: "objects", Shared: true, Run: func(ctx context.Context) error {
			_, err := obj.Revision(ctx)
			return err
		}},
		{Name: "secrets", Shared: true, Run: func(ctx context.Context) error {
			_, err := sec.Get(ctx, "readyz")
			if errors.Is(err, secrets.ErrNotFound) {
				return nil // the store responded
			}
			return err
		}},
	}
}

func listenerCheck(addr net.Addr) Check {
	return Check{Name: "listener", Run: func(ctx context.Context) error {
		host, port, err := net.SplitHostPort(addr.String())
		if err != nil {
			return err
		}
		if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
			host = "localhost"
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
		if err != nil {
			return err
		}
		return conn.Close()
	}}
}
