package main

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"k8s.io/client-go/rest"

	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/test/cluster"
)

const (
	// hangRounds is the number of rounds, each without and with a hammer.
	hangRounds = 3
	// hangTime is how long each half of a round lasts. The hanging cluster is probed several times in it.
	hangTime = 20 * time.Second
	// hangCallers are the concurrent requests of the other callers.
	hangCallers = 4
	// hammers are the concurrent requests of an unpaced hammer.
	hammers = 128
	// hammerTimeout bounds one request of the hammer.
	hammerTimeout = 30 * time.Second
)

// hang measures the requests to one cluster while another cluster hangs and a caller hammers it. The caller makes rate
// requests a second, unless rate is 0, and then as many as it can. First the cluster hangs wholly, so that the
// gateway's probes open its circuit breaker. Then it answers probes, and limits alone protect the other callers.
// Functions run in processes of their own.
func hang(ctx context.Context, out *report, set *cluster.Set, dir string, rate int) (err error) {
	data := filepath.Join(dir, "hang")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	var answersProbes atomic.Bool
	hanging := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !answersProbes.Load() || r.URL.Path != "/version" {
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"major":"1","minor":"34","gitVersion":"v1.34.0"}`)
	}))
	defer func() { hanging.CloseClientConnections(); hanging.Close() }()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hanging.Certificate().Raw})
	if err := registerStandIns(ctx, data, ca, "hanging", hanging.URL); err != nil {
		return err
	}
	cmd, cfg, err := startProcess(ctx, data, "--functions=process", "--register="+set.Cluster("member1").KubeconfigFile())
	if err != nil {
		return err
	}
	defer interrupt(cmd)
	good, err := newEndpoint("member1", cfg)
	if err != nil {
		return err
	}
	var runs []hangRun
	if paced := fmt.Sprintf("hammered %d a second", rate); rate > 0 {
		runs = []hangRun{{"hangs, " + paced, rate, false}, {"hangs but for probes, " + paced, rate, true}}
	}
	runs = append(runs, hangRun{"hangs but for probes, hammered c=128", 0, true})
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(tw, "GET of a healthy cluster, c=4\trequests\tfailed\tp50 ms\tp99 ms\tmax ms\tp99 / quiet\t")
	var answers []string
	for _, run := range runs {
		answersProbes.Store(run.answersProbes) // measuring without the hammer gives the gateway time for some probes
		counts, err := hangOnce(ctx, out, tw, good, data, cfg, run)
		if err != nil {
			return err
		}
		const text = "responses to the hammer by status code, another cluster %s: %v"
		answers = append(answers, fmt.Sprintf(text, run.name, counts))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, strings.Join(answers, "\n"))
	return err
}

// hangRun is one measurement: how the cluster hangs, and the requests a second to it, 0 for as fast as it goes.
type hangRun struct {
	name          string
	rate          int
	answersProbes bool
}

// hangOnce measures hangRounds times without and with a hammer, and writes a row for each. The ratio is the median of
// the rounds, because other programs of the machine disturb some of them.
func hangOnce(
	ctx context.Context, goals *report, out io.Writer, good endpoint, data string, cfg *rest.Config, run hangRun,
) (map[int]int64, error) {
	var quiet, busy []time.Duration
	var ratios []float64
	var failed int
	counts := map[int]int64{}
	for range hangRounds {
		before, n := goodCalls(ctx, good)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if n > 0 {
			return nil, fmt.Errorf("%d requests fail without the hammer", n)
		}
		stop, err := hammer(ctx, data, cfg, run.rate)
		if err != nil {
			return nil, err
		}
		during, n := goodCalls(ctx, good)
		for code, n := range stop() {
			counts[code] += n
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if len(during) == 0 {
			return nil, fmt.Errorf("all %d requests fail beside the hammer", n)
		}
		failed += n
		quiet, busy = append(quiet, before...), append(busy, during...)
		ratios = append(ratios, ms(at(during, 0.99))/ms(at(before, 0.99)))
	}
	ratio := median(ratios)
	for _, row := range []struct {
		name    string
		elapsed []time.Duration
		failed  int
		ratio   float64
	}{{"quiet", quiet, 0, 1}, {"another cluster " + run.name, busy, failed, ratio}} {
		slices.Sort(row.elapsed)
		_, _ = fmt.Fprintf(out, "%s\t%d\t%d\t%.2f\t%.2f\t%.0f\t%.2f\t\n", row.name, len(row.elapsed), row.failed,
			ms(at(row.elapsed, 0.5)), ms(at(row.elapsed, 0.99)), ms(at(row.elapsed, 1)), row.ratio)
	}
	goals.atMost("p99 of other callers, another cluster "+run.name+": / quiet", ratio, 2, "")
	goals.atMost("failed requests of other callers, another cluster "+run.name, float64(failed), 0, "")
	return counts, nil
}

// goodCalls reads a namespace for hangTime and returns the sorted times of the successful calls.
func goodCalls(ctx context.Context, w endpoint) (elapsed []time.Duration, failed int) {
	ctx, cancel := context.WithTimeout(ctx, hangTime)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range hangCallers {
		wg.Go(func() {
			for ctx.Err() == nil {
				start := time.Now()
				err := get(ctx, w, smallPath)
				if ctx.Err() != nil {
					return
				}
				mu.Lock()
				if err == nil {
					elapsed = append(elapsed, time.Since(start))
				} else {
					failed++
				}
				mu.Unlock()
				wait(ctx, 20*time.Millisecond) // callers that think, or two cores measure themselves
			}
		})
	}
	wg.Wait()
	slices.Sort(elapsed)
	return elapsed, failed
}

// hammer reads the hanging cluster as another user until stop is called. It begins rate requests a second, whether
// responses come or not, or keeps hammers requests in progress if rate is 0. stop returns the number of
// responses by status code; 0 counts requests that failed.
func hammer(ctx context.Context, data string, cfg *rest.Config, rate int) (stop func() map[int]int64, err error) {
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
	transport := &http.Transport{TLSClientConfig: tlsConfig, MaxIdleConnsPerHost: hammers}
	client := &http.Client{Transport: transport, Timeout: hammerTimeout}
	ctx, cancel := context.WithCancel(ctx)
	var counts [600]atomic.Int64
	var wg sync.WaitGroup
	once := func() {
		if code := hammerOnce(ctx, client, cfg.Host); ctx.Err() == nil {
			counts[code].Add(1)
		}
	}
	if rate > 0 {
		wg.Go(func() {
			tick := time.NewTicker(time.Second / time.Duration(rate))
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					wg.Go(once)
				}
			}
		})
	} else {
		for range hammers {
			wg.Go(func() {
				for ctx.Err() == nil {
					once()
				}
			})
		}
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
