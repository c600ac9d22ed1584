package main

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"k8s.io/client-go/rest"

	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/test/cluster"
)

const (
	// hangTime is how long each measurement lasts. The hanging cluster is probed several times in it.
	hangTime = 90 * time.Second
	// hangCallers and hammers are the concurrent requests of the other callers, and of the caller who hammers the
	// hanging cluster.
	hangCallers = 4
	hammers     = 128
)

// hang measures the calls to one cluster while another cluster hangs and a caller hammers it. Functions run in
// processes of their own.
func hang(ctx context.Context, out io.Writer, set *cluster.Set, dir string) (err error) {
	data := filepath.Join(dir, "hang")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	never := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	hanging := httptest.NewTLSServer(http.HandlerFunc(never))
	defer func() { hanging.CloseClientConnections(); hanging.Close() }()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hanging.Certificate().Raw})
	if err := registerStandIns(ctx, data, ca, "hanging", hanging.URL); err != nil {
		return err
	}
	cmd, cfg, err := startProcess(ctx, data, "--functions=process", "--register="+set.Cluster("member1").KubeconfigFile())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cmd.Process.Signal(os.Interrupt)); _ = cmd.Wait() }()
	good, err := wayOf("member1", cfg)
	if err != nil {
		return err
	}
	quiet, failed := goodCalls(ctx, good)
	if failed > 0 {
		return fmt.Errorf("%d calls fail without anything that hangs", failed)
	}
	stop, err := hammer(ctx, data, cfg)
	if err != nil {
		return err
	}
	busy, failed := goodCalls(ctx, good)
	counts := stop()
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(tw, "GET of a healthy cluster, c=4\tcalls\tfailed\tp50 ms\tp99 ms\tmax ms\tp99 / quiet\t")
	for _, row := range []struct {
		name   string
		took   []time.Duration
		failed int
	}{{"quiet", quiet, 0}, {"another cluster hangs and is hammered, c=128", busy, failed}} {
		_, _ = fmt.Fprintf(tw, "%s\t%d\t%d\t%.2f\t%.2f\t%.0f\t%.2f\t\n", row.name, len(row.took), row.failed,
			ms(at(row.took, 0.5)), ms(at(row.took, 0.99)), ms(at(row.took, 1)), ms(at(row.took, 0.99))/ms(at(quiet, 0.99)))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "answers to the hammer by status code: %v\n", counts)
	return err
}

// goodCalls reads a namespace for hangTime and returns the sorted times of the successful calls.
func goodCalls(ctx context.Context, w way) (took []time.Duration, failed int) {
	ctx, cancel := context.WithTimeout(ctx, hangTime)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range hangCallers {
		wg.Go(func() {
			for ctx.Err() == nil {
				start := time.Now()
				err := get(ctx, w, "/api/v1/namespaces/default")
				if ctx.Err() != nil {
					return
				}
				mu.Lock()
				if took = append(took, time.Since(start)); err != nil {
					failed++
				}
				mu.Unlock()
				wait(ctx, 20*time.Millisecond) // callers that think, or two cores measure themselves
			}
		})
	}
	wg.Wait()
	slices.Sort(took)
	return took, failed
}

// hammer reads the hanging cluster as another user, without pause, until stop is called. stop returns the number of
// answers by status code; 0 is a request that failed.
func hammer(ctx context.Context, data string, cfg *rest.Config) (stop func() map[int]int64, err error) {
	ca, err := pki.LoadCA(filepath.Join(data, "pki"), "client-ca")
	if err != nil {
		return nil, err
	}
	cert, key, err := ca.Client("hammer", []string{"system:masters"})
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, err
	}
	tlsConfig.GetClientCertificate, tlsConfig.Certificates = nil, []tls.Certificate{pair}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: tlsConfig, MaxIdleConnsPerHost: hammers}}
	ctx, cancel := context.WithCancel(ctx)
	var counts [600]atomic.Int64
	var wg sync.WaitGroup
	for range hammers {
		wg.Go(func() {
			for ctx.Err() == nil {
				counts[hammerOnce(ctx, client, cfg.Host)].Add(1)
				wait(ctx, 100*time.Millisecond) // the attack is on concurrency, not on the processor
			}
		})
	}
	return func() map[int]int64 {
		cancel()
		wg.Wait()
		client.CloseIdleConnections()
		answers := map[int]int64{}
		for code := range counts {
			if n := counts[code].Load(); n > 0 {
				answers[code] = n
			}
		}
		return answers
	}, nil
}

// hammerOnce makes one request to the hanging cluster, follows redirects, and returns the status code; 0 is an error.
func hammerOnce(ctx context.Context, client *http.Client, host string) int {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, host, nil)
	if err != nil {
		return 0
	}
	r.URL.Path = "/clusters/hanging/api/v1/pods"
	resp, err := client.Do(r)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}
